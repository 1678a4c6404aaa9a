// Package ext has the two types that Traefik's dynamic configuration embeds for extensions. Traefik keeps it as a module inside its own repository, which
// no module proxy serves.
package ext

// HTTP extends the HTTP configuration by nothing.
type HTTP struct{}

// Router extends a router by nothing.
type Router struct{}
