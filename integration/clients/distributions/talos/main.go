// Patches a machine configuration of a control plane node as Talos does, and prints what kube-apiserver gets.
//
//	talos RELEASE FILE
//
// RELEASE is the one whose `talosctl gen config` writes the configuration, such as v1.14.
package main

import (
	"encoding/json"
	"fmt"
	"os"

	"github.com/siderolabs/talos/pkg/machinery/config"
	configinterface "github.com/siderolabs/talos/pkg/machinery/config/config"
	"github.com/siderolabs/talos/pkg/machinery/config/configpatcher"
	"github.com/siderolabs/talos/pkg/machinery/config/generate"
	"github.com/siderolabs/talos/pkg/machinery/config/machine"
	"github.com/siderolabs/talos/pkg/machinery/config/types/k8s"
)

const kubernetes = "1.36.3"

type understood struct {
	APIServer       apiserver      `json:"apiserver"`
	UsesDocument    bool           `json:"usesDocument"`
	Document        map[string]any `json:"document"`
	DefaultDocument map[string]any `json:"defaultDocument"`
	Files           []file         `json:"files"`
}

type apiserver struct {
	AuthenticationConfig string  `json:"authenticationConfig"`
	Mounts               []mount `json:"mounts"`
}

type mount struct {
	Host     string `json:"host"`
	Inside   string `json:"inside"`
	ReadOnly bool   `json:"readOnly"`
}

type file struct {
	Path        string `json:"path"`
	Permissions string `json:"permissions"`
	Content     string `json:"content"`
}

// A container needs no disk for an installation, which a patch does not name.
type container struct{}

func (container) String() string        { return "container" }
func (container) RequiresInstall() bool { return false }
func (container) InContainer() bool     { return true }

func main() {
	if len(os.Args) != 3 {
		fail(fmt.Errorf("usage: talos RELEASE FILE"))
	}
	answer, err := read(os.Args[1], os.Args[2])
	if err != nil {
		fail(err)
	}
	if err := json.NewEncoder(os.Stdout).Encode(answer); err != nil {
		fail(err)
	}
}

func read(release, path string) (*understood, error) {
	text, err := os.ReadFile(path)
	if err != nil {
		return nil, err
	}
	patched, err := patch(release, text)
	if err != nil {
		return nil, err
	}
	if _, err := patched.Validate(container{}); err != nil {
		return nil, err
	}
	answer := &understood{
		DefaultDocument: k8s.DefaultAuthenticationConfig().Configuration(),
		Files:           []file{},
		APIServer:       apiserver{Mounts: []mount{}},
	}
	if document := patched.K8sAuthenticationConfig(); document != nil {
		answer.Document = document.Configuration()
	}
	if server := patched.K8sAPIServerConfig(); server != nil {
		answer.UsesDocument = server.UseAuthenticationConfig()
		answer.APIServer = of(server)
	}
	files, err := patched.Machine().Files()
	if err != nil {
		return nil, err
	}
	for _, one := range files {
		answer.Files = append(answer.Files, file{Path: one.Path(), Permissions: fmt.Sprintf("%04o", one.Permissions()), Content: one.Content()})
	}
	return answer, nil
}

func patch(release string, text []byte) (config.Provider, error) {
	contract, err := config.ParseContractFromVersion(release)
	if err != nil {
		return nil, err
	}
	input, err := generate.NewInput("test", "https://192.0.2.1:6443", kubernetes, generate.WithVersionContract(contract))
	if err != nil {
		return nil, err
	}
	generated, err := input.Config(machine.TypeControlPlane)
	if err != nil {
		return nil, err
	}
	change, err := configpatcher.LoadPatch(text)
	if err != nil {
		return nil, err
	}
	output, err := configpatcher.Apply(configpatcher.WithConfig(generated), []configpatcher.Patch{change})
	if err != nil {
		return nil, err
	}
	return output.Config()
}

func of(server configinterface.K8sAPIServerConfig) apiserver {
	answer := apiserver{Mounts: []mount{}}
	for _, value := range server.ExtraArgs()["authentication-config"] {
		answer.AuthenticationConfig = value
	}
	for _, volume := range server.ExtraVolumes() {
		answer.Mounts = append(answer.Mounts, mount{Host: volume.HostPath(), Inside: volume.MountPath(), ReadOnly: volume.ReadOnly()})
	}
	return answer
}

func fail(err error) {
	fmt.Fprintln(os.Stderr, "error:", err)
	os.Exit(1)
}
