//! The Common Expression Language as kube-apiserver's structured authentication runs it.
