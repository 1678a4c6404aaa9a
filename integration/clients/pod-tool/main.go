// The program of the small images with which tests look out of a Pod. It is static, and uses Go's standard library only.
//
//	pod-tool pause                        waits until it is asked to end; also what a Pod's sandbox runs
//	pod-tool cat FILE...                  prints files
//	pod-tool ls FOLDER...                 prints the paths below folders
//	pod-tool get URL [CA] [TOKEN-FILE]    prints the status and the body of an answer; without a CA, any certificate is taken
//	pod-tool post URL CA BUNDLE FORM      the same of a form, sent with the client certificate of a credential bundle (one PEM file)
//	pod-tool dial ADDRESS...              prints for each whether a TCP connection was made
package main

import (
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net"
	"net/http"
	"os"
	"os/signal"
	"path/filepath"
	"strings"
	"syscall"
	"time"
)

const limit = 5 * time.Second

func main() {
	if err := run(os.Args[1:]); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func run(args []string) error {
	if len(args) == 0 {
		return errors.New("name what to do")
	}
	rest := args[1:]
	switch args[0] {
	case "pause":
		return pause()
	case "cat":
		return each(rest, func(path string) error {
			text, err := os.ReadFile(path)
			os.Stdout.Write(text)
			return err
		})
	case "ls":
		return each(rest, list)
	case "get":
		return get(rest)
	case "post":
		return post(rest)
	case "dial":
		return each(rest, dial)
	default:
		return fmt.Errorf("there is no command %s", args[0])
	}
}

func each(all []string, do func(string) error) error {
	for _, one := range all {
		if err := do(one); err != nil {
			return err
		}
	}
	return nil
}

// pause also collects the children that a Pod with one process namespace leaves to it.
func pause() error {
	signals := make(chan os.Signal, 1)
	signal.Notify(signals, syscall.SIGINT, syscall.SIGTERM, syscall.SIGCHLD)
	for received := range signals {
		if received != syscall.SIGCHLD {
			return nil
		}
		for {
			if id, err := syscall.Wait4(-1, nil, syscall.WNOHANG, nil); id <= 0 || err != nil {
				break
			}
		}
	}
	return nil
}

// list names what it may not read, too.
func list(folder string) error {
	return filepath.WalkDir(folder, func(path string, _ fs.DirEntry, err error) error {
		if err != nil {
			fmt.Println(path, err)
			return nil
		}
		fmt.Println(path)
		return nil
	})
}

func get(args []string) error {
	if len(args) == 0 {
		return errors.New("name a URL")
	}
	trust := &tls.Config{InsecureSkipVerify: true}
	if len(args) > 1 && args[1] != "" {
		pem, err := os.ReadFile(args[1])
		if err != nil {
			return err
		}
		pool := x509.NewCertPool()
		pool.AppendCertsFromPEM(pem)
		trust = &tls.Config{RootCAs: pool}
	}
	request, err := http.NewRequest(http.MethodGet, args[0], nil)
	if err != nil {
		return err
	}
	if len(args) > 2 {
		token, err := os.ReadFile(args[2])
		if err != nil {
			return err
		}
		request.Header.Set("Authorization", "Bearer "+strings.TrimSpace(string(token)))
	}
	return send(request, trust)
}

func post(args []string) error {
	if len(args) != 4 {
		return errors.New("name a URL, a CA, a credential bundle and a form")
	}
	pem, err := os.ReadFile(args[1])
	if err != nil {
		return err
	}
	pool := x509.NewCertPool()
	pool.AppendCertsFromPEM(pem)
	// The key and the chain of a bundle are in one file.
	pair, err := tls.LoadX509KeyPair(args[2], args[2])
	if err != nil {
		return err
	}
	request, err := http.NewRequest(http.MethodPost, args[0], strings.NewReader(args[3]))
	if err != nil {
		return err
	}
	request.Header.Set("Content-Type", "application/x-www-form-urlencoded")
	return send(request, &tls.Config{RootCAs: pool, Certificates: []tls.Certificate{pair}})
}

func send(request *http.Request, trust *tls.Config) error {
	client := http.Client{Timeout: limit, Transport: &http.Transport{TLSClientConfig: trust}}
	answer, err := client.Do(request)
	if err != nil {
		return err
	}
	defer answer.Body.Close()
	fmt.Println(answer.StatusCode)
	_, err = io.Copy(os.Stdout, answer.Body)
	return err
}

func dial(address string) error {
	connection, err := net.DialTimeout("tcp", address, limit)
	if err != nil {
		fmt.Println(address, "refused:", err)
		return nil
	}
	fmt.Println(address, "connected")
	return connection.Close()
}
