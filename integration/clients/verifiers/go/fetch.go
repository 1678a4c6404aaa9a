package main

import (
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"os"
	"time"
)

func trusting(caFile string) (*http.Client, error) {
	pem, err := os.ReadFile(caFile)
	if err != nil {
		return nil, err
	}
	roots := x509.NewCertPool()
	if !roots.AppendCertsFromPEM(pem) {
		return nil, fmt.Errorf("%s holds no certificate", caFile)
	}
	transport := &http.Transport{TLSClientConfig: &tls.Config{RootCAs: roots}}
	return &http.Client{Transport: transport, Timeout: 15 * time.Second}, nil
}

func get(client *http.Client, url string) ([]byte, error) {
	response, err := client.Get(url)
	if err != nil {
		return nil, err
	}
	defer response.Body.Close()
	body, err := io.ReadAll(response.Body)
	if err != nil {
		return nil, err
	}
	if response.StatusCode != http.StatusOK {
		return nil, fmt.Errorf("%s answered %s", url, response.Status)
	}
	return body, nil
}

// The discovery document's jwks_uri, once the document names the issuer that was asked for.
func keysURL(client *http.Client, asked *question) (string, error) {
	body, err := get(client, asked.Origin+"/.well-known/openid-configuration")
	if err != nil {
		return "", err
	}
	var document struct {
		Issuer  string `json:"issuer"`
		JWKSURI string `json:"jwks_uri"`
	}
	if err := json.Unmarshal(body, &document); err != nil {
		return "", err
	}
	if document.Issuer != asked.Issuer {
		return "", fmt.Errorf("the document is of issuer %q", document.Issuer)
	}
	return document.JWKSURI, nil
}

func keySet(client *http.Client, asked *question) ([]byte, error) {
	url, err := keysURL(client, asked)
	if err != nil {
		return nil, err
	}
	return get(client, url)
}
