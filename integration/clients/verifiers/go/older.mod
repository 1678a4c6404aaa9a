module keyferry.dev/integration/verifiers-go

go 1.26.0

require (
	github.com/coreos/go-oidc v2.3.0+incompatible
	github.com/coreos/go-oidc/v3 v3.11.0
	github.com/go-jose/go-jose/v3 v3.0.0
	github.com/go-jose/go-jose/v4 v4.0.3
	github.com/lestrrat-go/jwx/v3 v3.0.0
	gopkg.in/go-jose/go-jose.v2 v2.6.3
)

require (
	github.com/decred/dcrd/dcrec/secp256k1/v4 v4.4.0 // indirect
	github.com/goccy/go-json v0.10.3 // indirect
	github.com/lestrrat-go/blackmagic v1.0.2 // indirect
	github.com/lestrrat-go/httpcc v1.0.1 // indirect
	github.com/lestrrat-go/httprc/v3 v3.0.0-beta1 // indirect
	github.com/lestrrat-go/option v1.0.1 // indirect
	github.com/pquerna/cachecontrol v0.2.0 // indirect
	github.com/segmentio/asm v1.2.0 // indirect
	golang.org/x/crypto v0.36.0 // indirect
	golang.org/x/oauth2 v0.21.0 // indirect
	golang.org/x/sys v0.31.0 // indirect
)
