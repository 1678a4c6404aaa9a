//go:build ignore

// Prints what Go's x509 makes of certificates: one in hexadecimal a line on standard input, "ok" or the error on standard output.
// The releases 1.22.12, 1.23.12, 1.24.7, 1.24.13, 1.25.1, 1.25.14 and 1.26.8 made the columns of observed.tsv, each with its own go line
// in go.mod. A column that repeats the one before is empty there. The certificates are those of x509.CreateCertificate with RSA, ECDSA and
// Ed25519 keys and all extensions, with one to three changes: a byte, a tag, a length, or a node of the DER that is left out, doubled,
// swapped or replaced.
package main

import (
	"bufio"
	"crypto/x509"
	"encoding/hex"
	"fmt"
	"os"
)

func main() {
	lines := bufio.NewScanner(os.Stdin)
	lines.Buffer(nil, 1<<20)
	for lines.Scan() {
		der, err := hex.DecodeString(lines.Text())
		if err != nil {
			panic(err)
		}
		if _, err := x509.ParseCertificate(der); err != nil {
			fmt.Printf("err %q\n", err.Error())
		} else {
			fmt.Println("ok")
		}
	}
}
