// Reads a Cluster as kind reads it, and prints the configuration that kind gives to kubeadm in the first node, and the folders that it mounts there.
//
//	kind KUBERNETES-VERSION FILE
package main

import (
	"encoding/json"
	"fmt"
	"os"
	"strings"

	"sigs.k8s.io/kind/pkg/cluster/internal/kubeadm"
	"sigs.k8s.io/kind/pkg/internal/apis/config"
	"sigs.k8s.io/kind/pkg/internal/apis/config/encoding"
	"sigs.k8s.io/kind/pkg/internal/patch"
)

type understood struct {
	Kubeadm string  `json:"kubeadm"`
	Mounts  []mount `json:"mounts"`
}

type mount struct {
	Host     string `json:"host"`
	Inside   string `json:"inside"`
	ReadOnly bool   `json:"readOnly"`
}

func main() {
	if len(os.Args) != 3 {
		fail(fmt.Errorf("usage: kind KUBERNETES-VERSION FILE"))
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
	cluster, err := encoding.Load(path)
	if err != nil {
		return nil, err
	}
	config.SetDefaultsCluster(cluster)
	if err := cluster.Validate(); err != nil {
		return nil, err
	}
	node := cluster.Nodes[0]
	configuration, err := kubeadm.Config(kubeadm.ConfigData{
		ClusterName:          cluster.Name,
		KubernetesVersion:    version,
		ControlPlaneEndpoint: "kind-control-plane:6443",
		APIBindPort:          6443,
		APIServerAddress:     cluster.Networking.APIServerAddress,
		NodeProvider:         "docker",
		ControlPlane:         true,
		NodeAddress:          "192.0.2.1",
		NodeName:             "kind-control-plane",
		Token:                kubeadm.Token,
		KubeProxyMode:        string(cluster.Networking.KubeProxyMode),
		PodSubnet:            cluster.Networking.PodSubnet,
		ServiceSubnet:        cluster.Networking.ServiceSubnet,
		IPFamily:             cluster.Networking.IPFamily,
	})
	if err != nil {
		return nil, err
	}
	patched, err := patch.KubeYAML(configuration, node.KubeadmConfigPatches, node.KubeadmConfigPatchesJSON6902)
	if err != nil {
		return nil, err
	}
	// kind names its documents for the patches only, because kubeadm does not know the field.
	unnamed := strings.ReplaceAll(patched, "metadata:\n  name: config\n", "")
	answer := &understood{Kubeadm: unnamed, Mounts: []mount{}}
	for _, one := range node.ExtraMounts {
		answer.Mounts = append(answer.Mounts, mount{Host: one.HostPath, Inside: one.ContainerPath, ReadOnly: one.Readonly})
	}
	return answer, nil
}

func fail(err error) {
	fmt.Fprintln(os.Stderr, "error:", err)
	os.Exit(1)
}
