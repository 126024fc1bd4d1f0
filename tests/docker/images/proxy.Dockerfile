# nginx from Debian's package, started as the official image is: for machines that reach no registry.
ARG BASE
FROM ${BASE}
RUN useradd --system --no-create-home --shell /usr/sbin/nologin nginx \
    && apt-get update -q && apt-get install -y -q --no-install-recommends curl nginx-light
STOPSIGNAL SIGQUIT
CMD ["nginx", "-g", "daemon off;"]
