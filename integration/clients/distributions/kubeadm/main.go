// Reads a configuration file as kubeadm reads it, and prints what the kube-apiserver of the resulting static Pod gets: the value of
// --authentication-config and the mounted folders.
//
//	kubeadm FILE
//
// It fails where `kubeadm config validate --allow-deprecated-api` would.
package main

import (
	"encoding/json"
	"fmt"
	"os"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/kubernetes/cmd/kubeadm/app/constants"
	"k8s.io/kubernetes/cmd/kubeadm/app/phases/controlplane"
	"k8s.io/kubernetes/cmd/kubeadm/app/util/config"
)

const argument = "--authentication-config="

type understood struct {
	AuthenticationConfig string  `json:"authenticationConfig"`
	Mounts               []mount `json:"mounts"`
}

type mount struct {
	Host     string `json:"host"`
	Inside   string `json:"inside"`
	ReadOnly bool   `json:"readOnly"`
}

func main() {
	if len(os.Args) != 2 {
		fail(fmt.Errorf("usage: kubeadm FILE"))
	}
	answer, err := read(os.Args[1])
	if err != nil {
		fail(err)
	}
	if err := json.NewEncoder(os.Stdout).Encode(answer); err != nil {
		fail(err)
	}
}

func read(path string) (*understood, error) {
	text, err := os.ReadFile(path)
	if err != nil {
		return nil, err
	}
	if err := config.ValidateConfig(text, true, false); err != nil {
		return nil, err
	}
	configuration, err := config.BytesToInitConfiguration(text, true)
	if err != nil {
		return nil, err
	}
	pods := controlplane.GetStaticPodSpecs(&configuration.ClusterConfiguration, &configuration.LocalAPIEndpoint, nil)
	return of(pods[constants.KubeAPIServer])
}

func of(pod corev1.Pod) (*understood, error) {
	if len(pod.Spec.Containers) != 1 {
		return nil, fmt.Errorf("the Pod has %d containers", len(pod.Spec.Containers))
	}
	container := pod.Spec.Containers[0]
	answer := &understood{Mounts: []mount{}}
	for _, one := range container.Command {
		if value, found := strings.CutPrefix(one, argument); found {
			answer.AuthenticationConfig = value
		}
	}
	for _, inside := range container.VolumeMounts {
		for _, volume := range pod.Spec.Volumes {
			if volume.Name == inside.Name && volume.HostPath != nil {
				answer.Mounts = append(answer.Mounts, mount{Host: volume.HostPath.Path, Inside: inside.MountPath, ReadOnly: inside.ReadOnly})
			}
		}
	}
	return answer, nil
}

func fail(err error) {
	fmt.Fprintln(os.Stderr, "error:", err)
	os.Exit(1)
}
