# JupyterLab with the course on one machine, for a CPU:
#   docker build --tag torchcourse .
# In the folder with notebooks/ and labs/ (your work stays there), then open the address with the token that it prints:
#   docker run --rm -it -p 127.0.0.1:8888:8888 --shm-size=1g --user "$(id -u):$(id -g)" -v "$PWD:/work" torchcourse
# For an NVIDIA GPU, build with --build-arg INDEX=https://pypi.org/simple, and run with --gpus all.
# The tests compare this file with the project. It was not built where they ran: there was no Docker.
FROM python:3.12-slim
ARG INDEX=https://download.pytorch.org/whl/cpu

# Chapters 08 and 12 compile C++.
RUN apt-get update && apt-get install --yes --no-install-recommends g++ cmake && rm -rf /var/lib/apt/lists/*

WORKDIR /opt/torchcourse
COPY LICENSE LICENSE-TEXT constraints.txt pyproject.toml ./
COPY src src
RUN pip install --no-cache-dir --no-deps -c constraints.txt torch torchvision --index-url ${INDEX} \
    && pip install --no-cache-dir -c constraints.txt '.[lab]' \
    && torchcourse data fetch all --root /opt/data

# Whatever number --user gives has no name and no home in here; PyTorch and Jupyter want both.
ENV HOME=/tmp USER=student TORCHCOURSE_DATA=/opt/data
USER 1000
WORKDIR /work
EXPOSE 8888
CMD ["jupyter", "lab", "--ip=0.0.0.0", "--no-browser"]
