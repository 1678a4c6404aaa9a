package main

import (
	"crypto"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/sha256"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/asn1"
	"fmt"
	"math/big"
	"net/url"
	"time"

	ct "github.com/google/certificate-transparency-go"
	"github.com/google/certificate-transparency-go/tls"
	ctx509 "github.com/google/certificate-transparency-go/x509"
)

const life = 10 * time.Minute

var (
	// The issuer of the id-token, as DER UTF8String, in a certificate of Fulcio.
	issuerOID = asn1.ObjectIdentifier{1, 3, 6, 1, 4, 1, 57264, 1, 8}
	// RFC 6962 section 3.3: the proofs of the log in a certificate.
	proofsOID = asn1.ObjectIdentifier{1, 3, 6, 1, 4, 1, 11129, 2, 4, 2}
)

// fulcio issues certificates for identities, and enters them in its own log. sigstore-go's virtual instance writes neither proofs of a log nor
// subjects that are URIs, and source-controller requires the first; GitHub's subjects are URIs.
type fulcio struct {
	root    *x509.Certificate
	rootKey *ecdsa.PrivateKey
	logKey  *ecdsa.PrivateKey
}

func newFulcio() (*fulcio, error) {
	rootKey, err := newKey()
	if err != nil {
		return nil, err
	}
	logKey, err := newKey()
	if err != nil {
		return nil, err
	}
	template := &x509.Certificate{
		SerialNumber:          big.NewInt(1),
		Subject:               pkix.Name{CommonName: "fulcio", Organization: []string{"private.example.com"}},
		NotBefore:             time.Now().Add(-time.Hour),
		NotAfter:              time.Now().Add(24 * time.Hour),
		KeyUsage:              x509.KeyUsageCertSign,
		ExtKeyUsage:           []x509.ExtKeyUsage{x509.ExtKeyUsageCodeSigning},
		BasicConstraintsValid: true,
		IsCA:                  true,
	}
	root, err := issue(template, template, rootKey.Public(), rootKey)
	if err != nil {
		return nil, fmt.Errorf("the CA: %w", err)
	}
	return &fulcio{root: root, rootKey: rootKey, logKey: logKey}, nil
}

// certify issues a certificate of ten minutes for a new key.
func (f *fulcio) certify(issuer, subject string) (*x509.Certificate, *ecdsa.PrivateKey, error) {
	key, err := newKey()
	if err != nil {
		return nil, nil, err
	}
	name, err := url.Parse(subject)
	if err != nil {
		return nil, nil, fmt.Errorf("the subject: %w", err)
	}
	value, err := asn1.MarshalWithParams(issuer, "utf8")
	if err != nil {
		return nil, nil, fmt.Errorf("the issuer: %w", err)
	}
	serial, err := rand.Int(rand.Reader, new(big.Int).Lsh(big.NewInt(1), 120))
	if err != nil {
		return nil, nil, err
	}
	template := &x509.Certificate{
		SerialNumber:    serial,
		NotBefore:       time.Now().Add(-time.Minute),
		NotAfter:        time.Now().Add(life),
		KeyUsage:        x509.KeyUsageDigitalSignature,
		ExtKeyUsage:     []x509.ExtKeyUsage{x509.ExtKeyUsageCodeSigning},
		URIs:            []*url.URL{name},
		ExtraExtensions: []pkix.Extension{{Id: issuerOID, Value: value}},
	}
	// The log signs the certificate without its own proof, which is the last extension.
	without, err := issue(template, f.root, key.Public(), f.rootKey)
	if err != nil {
		return nil, nil, err
	}
	proofs, err := f.enter(without)
	if err != nil {
		return nil, nil, fmt.Errorf("the log of certificates: %w", err)
	}
	template.ExtraExtensions = append(template.ExtraExtensions, pkix.Extension{Id: proofsOID, Value: proofs})
	certificate, err := issue(template, f.root, key.Public(), f.rootKey)
	return certificate, key, err
}

// enter returns the extension with the log's promise to enter the certificate.
func (f *fulcio) enter(certificate *x509.Certificate) ([]byte, error) {
	id, err := keyID(f.logKey.Public())
	if err != nil {
		return nil, err
	}
	promise := ct.SignedCertificateTimestamp{
		SCTVersion: ct.V1,
		LogID:      ct.LogID{KeyID: [32]byte(id)},
		Timestamp:  uint64(time.Now().UnixMilli()),
	}
	entry := ct.LogEntry{Leaf: ct.MerkleTreeLeaf{
		Version:  ct.V1,
		LeafType: ct.TimestampedEntryLeafType,
		TimestampedEntry: &ct.TimestampedEntry{
			Timestamp: promise.Timestamp,
			EntryType: ct.PrecertLogEntryType,
			PrecertEntry: &ct.PreCert{
				IssuerKeyHash:  sha256.Sum256(f.root.RawSubjectPublicKeyInfo),
				TBSCertificate: certificate.RawTBSCertificate,
			},
		},
	}}
	input, err := ct.SerializeSCTSignatureInput(promise, entry)
	if err != nil {
		return nil, err
	}
	signature, err := tls.CreateSignature(*f.logKey, tls.SHA256, input)
	if err != nil {
		return nil, err
	}
	promise.Signature = ct.DigitallySigned(signature)
	one, err := tls.Marshal(promise)
	if err != nil {
		return nil, err
	}
	list, err := tls.Marshal(ctx509.SignedCertificateTimestampList{SCTList: []ctx509.SerializedSCT{{Val: one}}})
	if err != nil {
		return nil, err
	}
	return asn1.Marshal(list)
}

func issue(template, parent *x509.Certificate, public crypto.PublicKey, key *ecdsa.PrivateKey) (*x509.Certificate, error) {
	der, err := x509.CreateCertificate(rand.Reader, template, parent, public, key)
	if err != nil {
		return nil, err
	}
	return x509.ParseCertificate(der)
}

func newKey() (*ecdsa.PrivateKey, error) {
	return ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
}

// keyID is the name of a log: the SHA-256 of its public key.
func keyID(key crypto.PublicKey) ([]byte, error) {
	der, err := x509.MarshalPKIXPublicKey(key)
	if err != nil {
		return nil, err
	}
	sum := sha256.Sum256(der)
	return sum[:], nil
}
