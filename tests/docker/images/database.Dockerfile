# PostgreSQL from Debian's package, started as the official image is: for machines that reach no registry.
ARG BASE
FROM ${BASE}
RUN apt-get update -q && apt-get install -y -q --no-install-recommends postgresql \
    && ln -s /usr/lib/postgresql/*/bin/* /usr/local/bin/ \
    && install --directory --owner=postgres --group=postgres --mode=700 /var/lib/postgresql/data \
    && chmod 3777 /var/run/postgresql
# initdb makes a database of UTF-8 by that.
ENV LANG=C.UTF-8 PGDATA=/var/lib/postgresql/data
COPY start-database /usr/local/bin/
VOLUME /var/lib/postgresql/data
STOPSIGNAL SIGINT
CMD ["start-database"]
