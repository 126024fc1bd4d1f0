// What the script of the map, which the report has too, expects of a page.

const byId = (id) => document.getElementById(id);
const readJson = (id) => JSON.parse(byId(id).textContent);
