"""Asks the API server that a kubeconfig leads to who the caller is, by the kubernetes package, and prints the answer as JSON.

For each line of standard input it does so once more, with the kubeconfig loaded again.
"""

import json
import sys

from kubernetes import client, config


def whoami(path):
    config.load_kube_config(config_file=path)
    review = client.AuthenticationV1Api().create_self_subject_review(client.V1SelfSubjectReview(), _request_timeout=20)
    user = review.status.user_info
    print(json.dumps({"username": user.username, "extra": user.extra}), flush=True)


whoami(sys.argv[1])
for _ in sys.stdin:
    whoami(sys.argv[1])
