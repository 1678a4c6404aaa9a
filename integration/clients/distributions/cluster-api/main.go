// Reads a KubeadmControlPlane as strictly as kube-apiserver does for kubectl, and prints the configuration that Cluster API gives to kubeadm and
// the files that it writes.
//
//	cluster-api KUBERNETES-VERSION FILE
package main

import (
	"encoding/json"
	"fmt"
	"os"

	"github.com/blang/semver/v4"
	controlplanev1 "sigs.k8s.io/cluster-api/api/controlplane/kubeadm/v1beta2"
	kubeadmtypes "sigs.k8s.io/cluster-api/bootstrap/kubeadm/types"
	"sigs.k8s.io/cluster-api/bootstrap/kubeadm/types/upstream"
	"sigs.k8s.io/yaml"
)

type understood struct {
	Kubeadm string `json:"kubeadm"`
	Files   []file `json:"files"`
}

type file struct {
	Path        string `json:"path"`
	Permissions string `json:"permissions"`
	Content     string `json:"content"`
}

func main() {
	if len(os.Args) != 3 {
		fail(fmt.Errorf("usage: cluster-api KUBERNETES-VERSION FILE"))
	}
	answer, err := read(os.Args[1], os.Args[2])
	if err != nil {
		fail(err)
	}
	if err := json.NewEncoder(os.Stdout).Encode(answer); err != nil {
		fail(err)
	}
}

func read(version, path string) (*understood, error) {
	release, err := semver.Parse(version)
	if err != nil {
		return nil, err
	}
	text, err := os.ReadFile(path)
	if err != nil {
		return nil, err
	}
	var plane controlplanev1.KubeadmControlPlane
	if err := yaml.UnmarshalStrict(text, &plane); err != nil {
		return nil, err
	}
	if plane.APIVersion != controlplanev1.GroupVersion.String() || plane.Kind != "KubeadmControlPlane" {
		return nil, fmt.Errorf("this is a %s of %s", plane.Kind, plane.APIVersion)
	}
	spec := plane.Spec.KubeadmConfigSpec
	configuration, err := kubeadmtypes.MarshalClusterConfigurationForVersion(&spec.ClusterConfiguration, release, &upstream.AdditionalData{})
	if err != nil {
		return nil, err
	}
	answer := &understood{Kubeadm: configuration, Files: []file{}}
	for _, one := range spec.Files {
		answer.Files = append(answer.Files, file{Path: one.Path, Permissions: one.Permissions, Content: one.Content})
	}
	return answer, nil
}

func fail(err error) {
	fmt.Fprintln(os.Stderr, "error:", err)
	os.Exit(1)
}
