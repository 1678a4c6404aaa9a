// Asks the API server that a kubeconfig leads to who the caller is, by client-go, and prints the answer's userInfo as JSON.
// With "watch" before the kubeconfig it goes on asking every two seconds, beside a watch of the namespaces, and prints one JSON object
// for each answer, each event, and the end of the watch.
package main

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"time"

	authenticationv1 "k8s.io/api/authentication/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/clientcmd"
)

func main() {
	if len(os.Args) == 3 && os.Args[1] == "watch" {
		fail(follow(os.Args[2]))
	}
	if len(os.Args) != 2 {
		fail(fmt.Errorf("usage: client-go [watch] KUBECONFIG"))
	}
	user, err := whoami(os.Args[1])
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
