# volmin on a CPU:
#   docker build -t volmin .
#   docker run --rm --user "$(id -u):$(id -g)" -v "$PWD:/data" volmin audit table.csv --label COLUMN
FROM python:3.12-slim
# Give the index address of PyTorch's CPU-only build to leave out gigabytes of CUDA: --build-arg TORCH_INDEX=...
ARG TORCH_INDEX=
COPY pyproject.toml constraints.txt README.md LICENSE /volmin/
COPY src /volmin/src
RUN pip install --no-cache-dir -c /volmin/constraints.txt ${TORCH_INDEX:+--extra-index-url $TORCH_INDEX} /volmin
# Any user may run it, so that the files in the mounted folder belong to the caller; caches go to a folder that all may write.
ENV HOME=/tmp
USER nobody
WORKDIR /data
ENTRYPOINT ["volmin"]
