// Verifies tokens with Go libraries of several ages, each over a key set that it was given by an HTTPS server.
//
// Standard input: {"origin", "caFile", "issuer", "audience", "tokens": [...]}. Standard output: one JSON line for each library and
// token, with "subject" or "refused".
package main

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"os"
	"runtime/debug"
	"strings"
	"time"
)

type question struct {
	Origin   string   `json:"origin"`
	CAFile   string   `json:"caFile"`
	Issuer   string   `json:"issuer"`
	Audience string   `json:"audience"`
	Tokens   []string `json:"tokens"`
}

type answer struct {
	Verifier string `json:"verifier"`
	Version  string `json:"version"`
	Token    int    `json:"token"`
	Subject  string `json:"subject,omitempty"`
	Refused  string `json:"refused,omitempty"`
}

// A verifier of one library, whose key set is in place; it returns the subject of a good token.
type verifier func(token string) (string, error)

type library struct {
	name    string
	module  string
	prepare func(ctx context.Context, asked *question, client *http.Client) (verifier, error)
}

func main() {
	if len(os.Args) == 2 && os.Args[1] == "--version" {
		for _, one := range libraries {
			fmt.Println(one.name, versionOf(one.module))
		}
		return
	}
	var asked question
	if err := json.NewDecoder(os.Stdin).Decode(&asked); err != nil {
		fail(err)
	}
	client, err := trusting(asked.CAFile)
	if err != nil {
		fail(err)
	}
	out := json.NewEncoder(os.Stdout)
	for _, one := range libraries {
		ctx, cancel := context.WithTimeout(context.Background(), 20*time.Second)
		verify, err := one.prepare(ctx, &asked, client)
		for index, token := range asked.Tokens {
			said := answer{Verifier: one.name, Version: versionOf(one.module), Token: index}
			if err != nil {
				said.Refused = "key set: " + err.Error()
			} else if subject, err := verify(token); err != nil {
				said.Refused = err.Error()
			} else {
				said.Subject = subject
			}
			if err := out.Encode(said); err != nil {
				fail(err)
			}
		}
		cancel()
	}
}

// The version that was built in, not the one that somebody meant.
func versionOf(module string) string {
	info, ok := debug.ReadBuildInfo()
	if !ok {
		return "unknown"
	}
	for _, one := range info.Deps {
		if one.Path == module {
			return strings.TrimSuffix(one.Version, "+incompatible")
		}
	}
	return "unknown"
}

func fail(err error) {
	fmt.Fprintln(os.Stderr, "error:", err)
	os.Exit(1)
}
