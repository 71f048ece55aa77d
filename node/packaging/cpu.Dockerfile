# A node on CPUs. Nobody has built this yet: there was no Docker where it was written.
#
#   docker build -f node/packaging/cpu.Dockerfile -t intellect-node .
#   docker run -v intellect:/data -p 4001:4001/tcp -p 4001:4001/udp intellect-node \
#     --listen /ip4/0.0.0.0/tcp/4001 /ip4/0.0.0.0/udp/4001/quic-v1 \
#     --external /ip4/ADDRESS-OF-THE-HOST/tcp/4001 --bootstrap /ip4/…
#
# An entry point: docker run … --entrypoint intellect-bootstrap intellect-node --data-dir /data --listen … --manifest …
FROM rust:1.95-bookworm AS build
WORKDIR /source
COPY . .
RUN cargo build --locked --profile dist --bin intellect-node
RUN cargo install --locked cargo-about --version 0.9.3 --features cli && \
    cargo fetch --locked && cargo about generate --frozen --fail -m node/Cargo.toml -c node/packaging/about.toml \
    -o target/third-party.txt node/packaging/about.hbs

FROM debian:bookworm-slim
COPY --from=build /source/target/dist/intellect-node /usr/local/bin/intellect-node
COPY --from=build /source/target/third-party.txt /source/LICENSE-APACHE /source/LICENSE-MIT /usr/share/doc/intellect-node/
RUN ln /usr/local/bin/intellect-node /usr/local/bin/intellect-bootstrap && \
    useradd --system --home-dir /data intellect && install -d -m 0700 -o intellect -g intellect /data
USER intellect
VOLUME /data
EXPOSE 4001/tcp 4001/udp
STOPSIGNAL SIGINT
ENTRYPOINT ["intellect-node"]
CMD ["--help"]
ENV XDG_DATA_HOME=/data
