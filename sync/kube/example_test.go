package kube_test

import (
	"context"
	"fmt"
	"os"
	"path/filepath"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"limpet/state"
	"limpet/sync/api"
	"limpet/sync/apiserver"
	"limpet/sync/kube"
)

// A client speaks to an API: here to the embedded one, in the same process, which keeps its objects
// in a state file.
func Example() {
	ctx := context.Background()
	dir, err := os.MkdirTemp("", "limpet-example-")
	if err != nil {
		panic(err)
	}
	defer os.RemoveAll(dir)
	store, _, err := state.Open(ctx, state.Options{Path: filepath.Join(dir, "limpet.db")})
	if err != nil {
		panic(err)
	}
	defer store.Close()
	server, err := apiserver.New(store, apiserver.Options{})
	if err != nil {
		panic(err)
	}
	defer server.Close()

	client, err := kube.Connect(ctx, kube.Config{Transport: server.Transport()})
	if err != nil {
		panic(err)
	}
	defer client.Close()
	repositories := client.Resource(api.Repositories).Namespace("default")
	repository := &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": api.Repositories.GroupVersion().String(), "kind": "Repository",
		"metadata": map[string]any{"name": "boards"},
		"spec": map[string]any{
			"title": "Boards", "type": "git", "workflows": []any{},
			"sync": map[string]any{"enabled": true, "target": "folder", "intervalSeconds": int64(60)},
			"git":  map[string]any{"url": "https://git.example.org/boards", "branch": "main"},
		},
	}}
	made, err := repositories.Create(ctx, repository, metav1.CreateOptions{})
	if err != nil {
		panic(err)
	}
	_, err = repositories.Create(ctx, repository, metav1.CreateOptions{})
	fmt.Println(made.GetName(), "has generation", made.GetGeneration())
	fmt.Println(err)

	// Output:
	// boards has generation 1
	// repositories.provisioning.grafana.app "boards" already exists
}
