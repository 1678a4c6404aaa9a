// Asks the API server that a kubeconfig leads to who the caller is, by client-go, and prints the answer's userInfo as JSON.
// With "watch" before the kubeconfig it goes on asking every two seconds, beside a watch of the namespaces, and prints one JSON object
// for each answer, each event, and the end of the watch.
// With "client-credentials" it gets the token for that server by golang.org/x/oauth2/clientcredentials, with a token file as its assertion.
package main

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"fmt"
	"net/http"
	"net/url"
	"os"
	"time"

	"golang.org/x/oauth2"
	"golang.org/x/oauth2/clientcredentials"
	authenticationv1 "k8s.io/api/authentication/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/clientcmd"
)

func main() {
	if len(os.Args) == 3 && os.Args[1] == "watch" {
		fail(follow(os.Args[2]))
	}
	var user *authenticationv1.UserInfo
	var err error
	switch {
	case len(os.Args) == 7 && os.Args[1] == "client-credentials":
		user, err = whoamiByAssertion(os.Args[2], os.Args[3], os.Args[4], os.Args[5], os.Args[6])
	case len(os.Args) == 2:
		user, err = whoami(os.Args[1])
	default:
		err = fmt.Errorf("usage: client-go [watch] KUBECONFIG, or client-go client-credentials TOKEN-URL CA ACCESS TOKEN-FILE KUBECONFIG")
	}
	if err != nil {
		fail(err)
	}
	if err := json.NewEncoder(os.Stdout).Encode(user); err != nil {
		fail(err)
	}
}

func connect(kubeconfig string) (*kubernetes.Clientset, error) {
	config, err := clientcmd.BuildConfigFromFlags("", kubeconfig)
	if err != nil {
		return nil, err
	}
	return kubernetes.NewForConfig(config)
}

// One client set and one watch for as long as the program runs, as a controller has them.
func follow(kubeconfig string) error {
	clients, err := connect(kubeconfig)
	if err != nil {
		return err
	}
	namespaces, err := clients.CoreV1().Namespaces().Watch(context.Background(), metav1.ListOptions{})
	if err != nil {
		return err
	}
	lines := json.NewEncoder(os.Stdout)
	ticks := time.NewTicker(2 * time.Second)
	for {
		select {
		case event, open := <-namespaces.ResultChan():
			if !open {
				return lines.Encode(map[string]any{"end": true})
			}
			if object, ok := event.Object.(metav1.Object); ok {
				if err := lines.Encode(map[string]any{"event": event.Type, "name": object.GetName()}); err != nil {
					return err
				}
			}
		case <-ticks.C:
			user, err := ask(clients)
			if err != nil {
				return err
			}
			if err := lines.Encode(map[string]any{"user": user}); err != nil {
				return err
			}
		}
	}
}

func whoami(kubeconfig string) (*authenticationv1.UserInfo, error) {
	clients, err := connect(kubeconfig)
	if err != nil {
		return nil, err
	}
	return ask(clients)
}

// The kubeconfig says where the server is. The token comes from the token endpoint, as for any client of OAuth 2.0.
func whoamiByAssertion(tokenURL, ca, access, tokenFile, kubeconfig string) (*authenticationv1.UserInfo, error) {
	authority, err := os.ReadFile(ca)
	if err != nil {
		return nil, err
	}
	assertion, err := os.ReadFile(tokenFile)
	if err != nil {
		return nil, err
	}
	roots := x509.NewCertPool()
	roots.AppendCertsFromPEM(authority)
	transport := &http.Transport{TLSClientConfig: &tls.Config{RootCAs: roots}}
	ctx := context.WithValue(context.Background(), oauth2.HTTPClient, &http.Client{Transport: transport})
	credentials := clientcredentials.Config{
		TokenURL:  tokenURL,
		AuthStyle: oauth2.AuthStyleInParams,
		EndpointParams: url.Values{
			"client_assertion_type": {"urn:ietf:params:oauth:client-assertion-type:jwt-bearer"},
			"client_assertion":      {string(assertion)},
			"audience":              {access},
		},
	}
	config, err := clientcmd.BuildConfigFromFlags("", kubeconfig)
	if err != nil {
		return nil, err
	}
	source := credentials.TokenSource(ctx)
	config.Wrap(func(base http.RoundTripper) http.RoundTripper {
		return &oauth2.Transport{Source: source, Base: base}
	})
	clients, err := kubernetes.NewForConfig(config)
	if err != nil {
		return nil, err
	}
	return ask(clients)
}

func ask(clients *kubernetes.Clientset) (*authenticationv1.UserInfo, error) {
	ctx, cancel := context.WithTimeout(context.Background(), 20*time.Second)
	defer cancel()
	review, err := clients.AuthenticationV1().SelfSubjectReviews().Create(ctx, &authenticationv1.SelfSubjectReview{}, metav1.CreateOptions{})
	if err != nil {
		return nil, err
	}
	return &review.Status.UserInfo, nil
}

func fail(err error) {
	fmt.Fprintln(os.Stderr, "error:", err)
	os.Exit(1)
}
