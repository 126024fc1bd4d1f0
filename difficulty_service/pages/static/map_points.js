// Draws many points on a canvas: by WebGL, or pixel by pixel where no graphics processor does it.

const VERTEX = `#version 300 es
in vec2 position; in vec4 colour; uniform vec4 place; uniform float size; out vec4 shade;
void main() {
  gl_Position = vec4(position * place.xy + place.zw, 0, 1);
  gl_PointSize = size;
  shade = colour;
}`;
const FRAGMENT = `#version 300 es
precision highp float;  // as in the other shader, whose size it shares
in vec4 shade; uniform float size; uniform vec4 ring; out vec4 colour;
void main() {
  float inside = 0.5 * size - length(gl_PointCoord - 0.5) * size;
  float cover = clamp(inside, 0.0, 1.0);
  vec4 ink = shade;
  if (ring.a > 0.0) {
    ink = ring;
    cover *= clamp(2.0 - inside, 0.0, 1.0);
  }
  colour = vec4(ink.rgb, 1) * ink.a * cover;
}`;

// A browser that imitates a graphics processor is several times slower than PixelPainter. Not all of
// them admit it where they are asked for a context without a caveat.
function hasGraphicsProcessor() {
  const gl = document.createElement("canvas").getContext("webgl2", { failIfMajorPerformanceCaveat: true });
  if (!gl) return false;
  const known = gl.getExtension("WEBGL_debug_renderer_info");
  const name = gl.getParameter(known ? known.UNMASKED_RENDERER_WEBGL : gl.RENDERER);
  gl.getExtension("WEBGL_lose_context")?.loseContext();
  return !/swiftshader|llvmpipe|software|basic render/i.test(name);
}

// Both painters have the same methods. `paint` gets four bytes of colour a point and the order in
// which points are drawn; `draw` gets where positions from 0 to 1 lie: [left, bottom, width, height]
// in pixels of the canvas, the radius of points, and which of them have a ring of some colour.
class GlPainter {
  static for(canvas) {
    if (!hasGraphicsProcessor()) return null;
    const gl = canvas.getContext("webgl2", { antialias: false });
    return gl ? new GlPainter(canvas, gl) : null;
  }

  constructor(canvas, gl) {
    Object.assign(this, { canvas, gl });
    this.program = gl.createProgram();
    for (const [kind, source] of [[gl.VERTEX_SHADER, VERTEX], [gl.FRAGMENT_SHADER, FRAGMENT]]) {
      const shader = gl.createShader(kind);
      gl.shaderSource(shader, source);
      gl.compileShader(shader);
      gl.attachShader(this.program, shader);
    }
    gl.linkProgram(this.program);
    gl.useProgram(this.program);
    this.uniforms = Object.fromEntries(["place", "size", "ring"].map((name) => [name, gl.getUniformLocation(this.program, name)]));
    this.buffers = Object.fromEntries(["position", "colour", "order", "ringed"].map((name) => [name, gl.createBuffer()]));
    gl.enable(gl.BLEND);
    gl.blendFunc(gl.ONE, gl.ONE_MINUS_SRC_ALPHA);
  }

  place(positions) { this.attribute("position", positions, 2, this.gl.UNSIGNED_SHORT); }

  paint(colours, order) {
    this.attribute("colour", colours, 4, this.gl.UNSIGNED_BYTE);
    this.number = this.indices("order", order);
  }

  ring(chosen) { this.ringed = this.indices("ringed", chosen); }

  attribute(name, values, size, type) {
    const { gl } = this, place = gl.getAttribLocation(this.program, name);
    gl.bindBuffer(gl.ARRAY_BUFFER, this.buffers[name]);
    gl.bufferData(gl.ARRAY_BUFFER, values, gl.STATIC_DRAW);
    gl.enableVertexAttribArray(place);
    gl.vertexAttribPointer(place, size, type, true, 0, 0);
  }

  indices(name, values) {
    const { gl } = this;
    gl.bindBuffer(gl.ELEMENT_ARRAY_BUFFER, this.buffers[name]);
    gl.bufferData(gl.ELEMENT_ARRAY_BUFFER, values, gl.STATIC_DRAW);
    return values.length;
  }

  draw([left, bottom, width, height], radius, ringColour) {
    const { gl, canvas, uniforms } = this, { width: all, height: high } = canvas;
    gl.viewport(0, 0, all, high);
    gl.clearColor(0, 0, 0, 0);
    gl.clear(gl.COLOR_BUFFER_BIT);
    gl.uniform4f(uniforms.place, (2 * width) / all, (2 * height) / high, (2 * left) / all - 1, (2 * bottom) / high - 1);
    this.elements("order", this.number, 2 * radius, [0, 0, 0, 0]);
    this.elements("ringed", this.ringed, 2 * radius + 4, ringColour);
  }

  elements(name, number, size, ring) {
    const { gl, uniforms } = this;
    if (!number) return;
    gl.uniform1f(uniforms.size, size);
    gl.uniform4f(uniforms.ring, ...ring.map((part) => part / 255));
    gl.bindBuffer(gl.ELEMENT_ARRAY_BUFFER, this.buffers[name]);
    gl.drawElements(gl.POINTS, number, gl.UNSIGNED_INT, 0);
  }
}

class PixelPainter {
  static for(canvas) { return new PixelPainter(canvas, canvas.getContext("2d")); }

  constructor(canvas, context) { Object.assign(this, { canvas, context }); }

  place(positions) { this.positions = positions; }

  paint(colours, order) { Object.assign(this, { colours, order }); }

  ring(chosen) { this.ringed = chosen; }

  draw([left, bottom, width, height], radius, ringColour) {
    const { canvas, context, positions, colours } = this, { width: all, height: high } = canvas;
    if (!all || !high) return;
    const picture = this.blank(all, high), { data } = picture;
    const across = width / 65535, up = height / 65535;
    const stamp = (indices, { reach, pixels }, colourOf) => {
      for (const index of indices) {
        const x = Math.floor(left + positions[2 * index] * across);
        const y = Math.floor(high - bottom - positions[2 * index + 1] * up);
        if (x < -reach || y < -reach || x >= all + reach || y >= high + reach) continue;
        const isWhole = x >= reach && y >= reach && x < all - reach && y < high - reach;
        const [from, at] = colourOf(index), opacity = from[at + 3] / 255;
        const red = from[at], green = from[at + 1], blue = from[at + 2];
        for (let each = 0; each < pixels.length; each += 3) {
          const column = x + pixels[each], row = y + pixels[each + 1];
          if (!isWhole && (column < 0 || row < 0 || column >= all || row >= high)) continue;
          const cover = opacity * pixels[each + 2], byte = 4 * (row * all + column);
          // Colours of `data` are not multiplied by their opacity.
          const below = (data[byte + 3] / 255) * (1 - cover), sum = cover + below;
          if (below) {
            data[byte] = (red * cover + data[byte] * below) / sum;
            data[byte + 1] = (green * cover + data[byte + 1] * below) / sum;
            data[byte + 2] = (blue * cover + data[byte + 2] * below) / sum;
          } else {
            data[byte] = red;
            data[byte + 1] = green;
            data[byte + 2] = blue;
          }
          data[byte + 3] = 255 * sum;
        }
      }
    };
    const point = [colours, 0];
    stamp(this.order, pixelsOf(radius), (index) => { point[1] = 4 * index; return point; });
    stamp(this.ringed, pixelsOf(radius + 2, 1.2), () => [ringColour, 0]);
    context.putImageData(picture, 0, 0);
  }

  // An empty picture; the same one as long as the canvas has this size.
  blank(width, height) {
    if (this.picture?.width === width && this.picture.height === height) this.picture.data.fill(0);
    else this.picture = this.context.createImageData(width, height);
    return this.picture;
  }
}

// Column, row and cover of the pixels of a disc, or of a ring of some thickness, and how far they reach.
function pixelsOf(radius, thickness = Infinity) {
  const reach = Math.ceil(radius), pixels = [];
  for (let row = -reach; row <= reach; row += 1) {
    for (let column = -reach; column <= reach; column += 1) {
      const inside = radius + 0.5 - Math.hypot(row, column);
      const cover = Math.min(1, Math.max(0, inside), Math.max(0, thickness + 1 - inside));
      if (cover > 0) pixels.push(column, row, cover);
    }
  }
  return { reach, pixels: Float32Array.from(pixels) };
}

// The points of a map; what changes is drawn with the next frame, once.
export class PointCanvas {
  // Calls `onResize` with the size of the canvas on the page, which is read there alone.
  constructor(canvas, onResize) {
    Object.assign(this, { canvas, onResize, chosen: new Uint32Array(0), isDue: false, afterDraw: () => {} });
    this.painter = GlPainter.for(canvas) ?? PixelPainter.for(canvas);
    canvas.addEventListener("webglcontextlost", (event) => event.preventDefault());
    canvas.addEventListener("webglcontextrestored", () => {
      this.painter = GlPainter.for(canvas);
      this.place(this.positions);
      this.paint(this.colours, this.order);
      this.ring(this.chosen);
    });
    new ResizeObserver(() => this.measure()).observe(canvas.parentElement);
    this.ring(this.chosen);
  }

  measure() {
    const { canvas } = this;
    this.scale = window.devicePixelRatio || 1;
    canvas.width = Math.round(canvas.clientWidth * this.scale);
    canvas.height = Math.round(canvas.clientHeight * this.scale);
    this.onResize(canvas.clientWidth, canvas.clientHeight);
  }

  place(positions) {
    this.positions = positions;
    this.painter.place(positions);
  }

  paint(colours, order) {
    Object.assign(this, { colours, order });
    this.painter.paint(colours, order);
    this.redraw();
  }

  ring(chosen) {
    this.chosen = chosen;
    this.painter.ring(chosen);
    this.redraw();
  }

  // Where the points are on the page, their radius, and the colour of rings; all in its pixels.
  show(place, radius) {
    Object.assign(this, { placed: place, radius });
    this.redraw();
  }

  redraw() {
    if (this.isDue) return;
    this.isDue = true;
    requestAnimationFrame(() => {
      this.isDue = false;
      if (!this.canvas.width || !this.order || !this.placed) return;
      const parts = getComputedStyle(this.canvas).color.match(/[\d.]+/g).map(Number);
      const ring = [...parts.slice(0, 3), 255];
      this.painter.draw(this.placed.map((each) => each * this.scale), this.radius * this.scale, ring);
      this.afterDraw();
    });
  }
}
