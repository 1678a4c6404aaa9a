//go:build ignore

// Says what the library makes of each case: JSON lines on standard input, which hold "yaml" or, base64, "bytes". It prints the same
// lines with "json", or "refused", and "strict". With it, observed.jsonl was made; made again, it is the same:
//
//	mkdir work && cd work && cp ../observe.go main.go && go mod init observe && go get sigs.k8s.io/yaml@v1.6.0
//	go run main.go <../observed.jsonl
//
// The scanner, the parser and the decoder of sigs.k8s.io/yaml 1.3 (kube-apiserver 1.30), 1.4 (1.31 to 1.33) and 1.6 (from 1.34) differ in
// nothing: they are gopkg.in/yaml.v2 2.4.0, a copy of it, and go.yaml.in/yaml/v2 2.4.2 to 2.4.4.
package main

import (
	"bufio"
	"encoding/json"
	"os"

	"sigs.k8s.io/yaml"
)

type observation struct {
	YAML    *string         `json:"yaml,omitempty"`
	Bytes   []byte          `json:"bytes,omitempty"`
	JSON    json.RawMessage `json:"json,omitempty"`
	Refused string          `json:"refused,omitempty"`
	Strict  string          `json:"strict,omitempty"`
}

func main() {
	lines := bufio.NewScanner(os.Stdin)
	lines.Buffer(nil, 1<<24)
	out := json.NewEncoder(os.Stdout)
	out.SetEscapeHTML(false)
	for lines.Scan() {
		var one observation
		if err := json.Unmarshal(lines.Bytes(), &one); err != nil {
			panic(err)
		}
		text := one.Bytes
		if one.YAML != nil {
			text = []byte(*one.YAML)
		}
		one.JSON, one.Refused, one.Strict = nil, "", ""
		if value, err := yaml.YAMLToJSON(text); err != nil {
			one.Refused = err.Error()
		} else {
			one.JSON = value
			if _, err := yaml.YAMLToJSONStrict(text); err != nil {
				one.Strict = err.Error()
			}
		}
		if err := out.Encode(one); err != nil {
			panic(err)
		}
	}
}
