package main

import (
	"crypto"
	"crypto/ecdsa"
	"crypto/rand"
	"crypto/sha256"
	"crypto/x509"
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"time"

	"github.com/secure-systems-lab/go-securesystemslib/dsse"
	protobundle "github.com/sigstore/protobuf-specs/gen/pb-go/bundle/v1"
	protocommon "github.com/sigstore/protobuf-specs/gen/pb-go/common/v1"
	protodsse "github.com/sigstore/protobuf-specs/gen/pb-go/dsse"
	protorekor "github.com/sigstore/protobuf-specs/gen/pb-go/rekor/v1"
	"github.com/sigstore/sigstore-go/pkg/root"
	"github.com/sigstore/sigstore-go/pkg/testing/ca"
	"github.com/sigstore/sigstore-go/pkg/tlog"
	"google.golang.org/protobuf/encoding/protojson"
)

const (
	bundleType    = "application/vnd.dev.sigstore.bundle.v0.3+json"
	statementType = "application/vnd.in-toto+json"
)

// sigstore has a Fulcio of its own; Rekor and the timestamps are sigstore-go's virtual ones.
type sigstore struct {
	fulcio *fulcio
	others *ca.VirtualSigstore
}

func newSigstore() (*sigstore, error) {
	own, err := newFulcio()
	if err != nil {
		return nil, fmt.Errorf("fulcio: %w", err)
	}
	others, err := ca.NewVirtualSigstore()
	if err != nil {
		return nil, fmt.Errorf("rekor: %w", err)
	}
	return &sigstore{fulcio: own, others: others}, nil
}

// trustedRoot is the content of trusted_root.json.
func (s *sigstore) trustedRoot() ([]byte, error) {
	start, end := time.Now().Add(-time.Hour), time.Now().Add(24*time.Hour)
	authority := &root.FulcioCertificateAuthority{
		Root:                s.fulcio.root,
		URI:                 "https://fulcio.private.example.com",
		ValidityPeriodStart: start,
		ValidityPeriodEnd:   end,
	}
	certificates, err := log("https://ctfe.private.example.com", s.fulcio.logKey.Public(), start, end)
	if err != nil {
		return nil, err
	}
	rekor := map[string]*root.TransparencyLog{}
	for _, virtual := range s.others.RekorLogs() {
		one, err := log(virtual.BaseURL, virtual.PublicKey, start, end)
		if err != nil {
			return nil, err
		}
		rekor[hex.EncodeToString(one.ID)] = one
	}
	trusted, err := root.NewTrustedRoot(
		root.TrustedRootMediaType01,
		[]root.CertificateAuthority{authority},
		map[string]*root.TransparencyLog{hex.EncodeToString(certificates.ID): certificates},
		s.others.TimestampingAuthorities(),
		rekor,
	)
	if err != nil {
		return nil, err
	}
	return trusted.MarshalJSON()
}

func log(address string, key crypto.PublicKey, start, end time.Time) (*root.TransparencyLog, error) {
	id, err := keyID(key)
	if err != nil {
		return nil, err
	}
	return &root.TransparencyLog{
		BaseURL:             address,
		ID:                  id,
		ValidityPeriodStart: start,
		ValidityPeriodEnd:   end,
		HashFunc:            crypto.SHA256,
		PublicKey:           key,
		SignatureHashFunc:   crypto.SHA256,
	}, nil
}

// sign returns the bundle of an artifact: a signed statement that names its digest, the certificate, and the entry in Rekor.
func (s *sigstore) sign(digest, issuer, subject string) ([]byte, error) {
	certificate, key, err := s.fulcio.certify(issuer, subject)
	if err != nil {
		return nil, fmt.Errorf("the certificate: %w", err)
	}
	payload, err := json.Marshal(map[string]any{
		"_type":         "https://in-toto.io/Statement/v1",
		"subject":       []any{map[string]any{"digest": map[string]string{"sha256": digest}}},
		"predicateType": "https://sigstore.dev/cosign/sign/v1",
		"predicate":     map[string]any{},
	})
	if err != nil {
		return nil, err
	}
	hash := sha256.Sum256(dsse.PAE(statementType, payload))
	signature, err := ecdsa.SignASN1(rand.Reader, key, hash[:])
	if err != nil {
		return nil, err
	}
	envelope := &dsse.Envelope{
		PayloadType: statementType,
		Payload:     base64.StdEncoding.EncodeToString(payload),
		Signatures:  []dsse.Signature{{Sig: base64.StdEncoding.EncodeToString(signature)}},
	}
	entry, err := s.enter(certificate, envelope, signature)
	if err != nil {
		return nil, fmt.Errorf("the entry in rekor: %w", err)
	}
	return protojson.Marshal(&protobundle.Bundle{
		MediaType: bundleType,
		VerificationMaterial: &protobundle.VerificationMaterial{
			Content: &protobundle.VerificationMaterial_Certificate{
				Certificate: &protocommon.X509Certificate{RawBytes: certificate.Raw},
			},
			TlogEntries: []*protorekor.TransparencyLogEntry{entry},
		},
		Content: &protobundle.Bundle_DsseEnvelope{DsseEnvelope: &protodsse.Envelope{
			PayloadType: statementType,
			Payload:     payload,
			Signatures:  []*protodsse.Signature{{Sig: signature}},
		}},
	})
}

// enter returns the entry of a signature in Rekor, with the log's promise, whose time proves that the certificate was valid.
func (s *sigstore) enter(certificate *x509.Certificate, envelope *dsse.Envelope, signature []byte) (*protorekor.TransparencyLogEntry, error) {
	virtual, err := s.others.GenerateTlogEntry(certificate, envelope, signature, time.Now().Unix(), true)
	if err != nil {
		return nil, err
	}
	// The virtual entry keeps the promise to itself, and has no kind.
	entry := virtual.TransparencyLogEntry()
	promise, err := s.others.RekorSignPayload(tlog.RekorPayload{
		Body:           base64.StdEncoding.EncodeToString(entry.CanonicalizedBody),
		IntegratedTime: entry.IntegratedTime,
		LogIndex:       entry.LogIndex,
		LogID:          hex.EncodeToString(entry.LogId.KeyId),
	})
	if err != nil {
		return nil, err
	}
	entry.KindVersion = &protorekor.KindVersion{Kind: "dsse", Version: "0.0.1"}
	entry.InclusionPromise = &protorekor.InclusionPromise{SignedEntryTimestamp: promise}
	return entry, nil
}
