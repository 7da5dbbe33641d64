# A runner with its store and its handlers in one volume: docs/deploy.md has the line that starts it.

FROM rust:1.95-slim-bookworm AS build
WORKDIR /src
COPY . .
RUN --mount=type=cache,target=/usr/local/cargo/registry --mount=type=cache,target=/src/target \
    cargo build --release --locked -p hourhand \
    && install -s -D target/release/hourhand /out/hourhand

FROM debian:bookworm-slim
# Certificates: for a Redis behind TLS.
RUN apt-get update \
    && apt-get install -y --no-install-recommends ca-certificates \
    && rm -rf /var/lib/apt/lists/* \
    && useradd --uid 10001 --user-group --no-create-home --home-dir /var/lib/hourhand --shell /usr/sbin/nologin hourhand \
    && install -d -o hourhand -g hourhand -m 2770 /var/lib/hourhand /var/lib/hourhand/handlers
COPY --from=build /out/hourhand /usr/local/bin/hourhand

ENV HOURHAND_STORE=sqlite:///var/lib/hourhand/hourhand.db \
    HOURHAND_HANDLERS=/var/lib/hourhand/handlers \
    HOURHAND_STATE_DIR=/var/lib/hourhand \
    HOURHAND_CACHE_DIR=/var/lib/hourhand/cache
USER 10001:10001
# Where hourhand.toml is read: root's, and not of whoever installs handlers.
WORKDIR /etc/hourhand
VOLUME /var/lib/hourhand
STOPSIGNAL SIGTERM
ENTRYPOINT ["hourhand"]
CMD ["run"]
