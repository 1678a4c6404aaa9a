package main

import (
	"fmt"
	"io"
	"net/http"
	"strings"
)

// documents answers HTTP requests from memory.
type documents map[string]document

func (d documents) RoundTrip(request *http.Request) (*http.Response, error) {
	found, ok := d[request.URL.String()]
	if !ok {
		return nil, fmt.Errorf("no document at %s", request.URL)
	}
	header := http.Header{}
	if found.ContentType != "" {
		header.Set("Content-Type", found.ContentType)
	}
	return &http.Response{
		Status:        fmt.Sprintf("%d %s", found.Status, http.StatusText(found.Status)),
		StatusCode:    found.Status,
		Proto:         "HTTP/1.1",
		ProtoMajor:    1,
		ProtoMinor:    1,
		Header:        header,
		Body:          io.NopCloser(strings.NewReader(found.Body)),
		ContentLength: int64(len(found.Body)),
		Request:       request,
	}, nil
}
