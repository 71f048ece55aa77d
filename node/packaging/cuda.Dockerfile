# A node on GPUs of NVIDIA. Nobody has built this yet: there was no Docker, and no GPU, where it was written.
# The image has CUDA's run-time compiler (NVRTC) and its headers; the driver comes from the host.
#
#   docker build -f node/packaging/cuda.Dockerfile -t intellect-node:cuda .
#   docker run --gpus all -v intellect:/data -p 4001:4001/tcp -p 4001:4001/udp intellect-node:cuda \
#     --listen /ip4/0.0.0.0/tcp/4001 /ip4/0.0.0.0/udp/4001/quic-v1 \
#     --external /ip4/ADDRESS-OF-THE-HOST/tcp/4001 --bootstrap /ip4/…
FROM nvidia/cuda:12.8.1-devel-ubuntu24.04 AS build
RUN apt-get update && apt-get install -y --no-install-recommends ca-certificates curl gcc libc6-dev && \
    curl -sSf https://sh.rustup.rs | sh -s -- -y --profile minimal --default-toolchain 1.95.0
ENV PATH=/root/.cargo/bin:$PATH
WORKDIR /source
COPY . .
RUN cargo build --locked --profile dist --bin intellect-node --features cuda
RUN cargo install --locked cargo-about --version 0.9.3 --features cli && \
    cargo fetch --locked && cargo about generate --frozen --fail -m node/Cargo.toml -c node/packaging/about.toml --features cuda \
    -o target/third-party.txt node/packaging/about.hbs

# Kernels are compiled at run time, which needs the headers of the toolkit too; those for tensor cores are in cuda-crt.
FROM nvidia/cuda:12.8.1-runtime-ubuntu24.04
RUN apt-get update && apt-get install -y --no-install-recommends cuda-nvrtc-12-8 cuda-cudart-dev-12-8 cuda-crt-12-8 && \
    rm -rf /var/lib/apt/lists/*
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
