// The oracle answers what kube-apiserver's own authenticator makes of a configuration and tokens: cases as JSON lines
// on standard input, one JSON line each on standard output, in the same order.
//
// The same files are built against several releases of k8s.io/apiserver; the folder's go.mod says which.
package main

import (
	"bufio"
	"encoding/json"
	"flag"
	"fmt"
	"io"
	"os"
	"runtime/debug"
	"time"

	"k8s.io/klog/v2"
)

func main() {
	showVersion := flag.Bool("version", false, "print the release of k8s.io/apiserver and end")
	flag.Parse()
	if *showVersion {
		fmt.Println("oracle", apiserverVersion())
		return
	}
	// Expiry texts hold local times.
	time.Local = time.UTC
	// Refusals are logged too; what is asked for stands in the answers.
	klog.SetLogger(klog.Logger{})
	if err := serve(os.Stdin, os.Stdout); err != nil {
		fmt.Fprintln(os.Stderr, "oracle:", err)
		os.Exit(1)
	}
}

func serve(input io.Reader, output io.Writer) error {
	oracle := newOracle()
	lines := bufio.NewReaderSize(input, 1<<20)
	answers := bufio.NewWriterSize(output, 1<<20)
	for {
		line, err := lines.ReadBytes('\n')
		if len(line) > 0 {
			if err := oracle.answerLine(line, answers); err != nil {
				return err
			}
		}
		if err == io.EOF {
			return answers.Flush()
		}
		if err != nil {
			return err
		}
		// Flush when the asker waits, not after every line.
		if lines.Buffered() == 0 {
			if err := answers.Flush(); err != nil {
				return err
			}
		}
	}
}

func (o *oracle) answerLine(line []byte, answers *bufio.Writer) error {
	var c question
	if err := json.Unmarshal(line, &c); err != nil {
		return fmt.Errorf("read a case: %w", err)
	}
	encoded, err := json.Marshal(o.answer(c))
	if err != nil {
		return fmt.Errorf("write the answer of case %d: %w", c.ID, err)
	}
	_, err = answers.Write(append(encoded, '\n'))
	return err
}

func apiserverVersion() string {
	info, ok := debug.ReadBuildInfo()
	if !ok {
		return "unknown"
	}
	for _, module := range info.Deps {
		if module.Path == "k8s.io/apiserver" {
			return module.Version
		}
	}
	return "unknown"
}
