# The server with every extra, from the wheel: docker build -t turnlog . && docker run -p 127.0.0.1:8600:8600 turnlog
FROM python:3.13-slim AS wheel
WORKDIR /source
COPY requirements/package.txt ./requirements/
RUN pip install --no-cache-dir --require-hashes --no-deps -r requirements/package.txt
COPY pyproject.toml README.md LICENSE ./
COPY src ./src
RUN python -m build --wheel --no-isolation --outdir /wheel

FROM python:3.13-slim
COPY requirements/all.txt /opt/turnlog/
RUN pip install --no-cache-dir --require-hashes --no-deps -r /opt/turnlog/all.txt
COPY --from=wheel /wheel /opt/turnlog/
RUN pip install --no-cache-dir --no-deps /opt/turnlog/*.whl \
    && useradd --create-home --uid 8600 turnlog \
    && install -d -o turnlog -m 700 /data
ENV TURNLOG_HOME=/data TURNLOG_SERVER_HOST=0.0.0.0 PYTHONUNBUFFERED=1
USER 8600
VOLUME /data
EXPOSE 8600
HEALTHCHECK --interval=10s --timeout=3s --start-period=20s \
    CMD ["python", "-c", "import urllib.request as r; r.urlopen('http://127.0.0.1:8600/healthz', timeout=2)"]
CMD ["turnlog", "serve"]
