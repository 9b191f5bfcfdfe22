package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"time"

	apiextensions "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/apiextensions-apiserver/pkg/client/clientset/clientset"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/apimachinery/pkg/util/yaml"
	"k8s.io/client-go/rest"
)

const (
	pollEvery  = 20 * time.Millisecond
	serveUntil = 60 * time.Second // for all definitions together, on a busy machine
)

// install creates the definitions of the file and waits until each version of
// each resource answers a list: "Established" alone does not mean "served".
func (s *server) install(ctx context.Context, file string) error {
	ctx, cancel := context.WithTimeout(ctx, serveUntil)
	defer cancel()
	crds, err := readCRDs(file)
	if err != nil {
		return err
	}
	c, err := clientset.NewForConfig(s.loopback)
	if err != nil {
		return err
	}
	if err := s.poll(ctx, "/readyz"); err != nil {
		return err
	}
	for _, crd := range crds {
		_, err := c.ApiextensionsV1().CustomResourceDefinitions().Create(ctx, &crd, metav1.CreateOptions{})
		if err != nil && !apierrors.IsAlreadyExists(err) {
			return err
		}
	}
	groups := map[string]bool{}
	for _, crd := range crds {
		for _, v := range crd.Spec.Versions {
			if err := s.poll(ctx, fmt.Sprintf("/apis/%s/%s/%s?limit=1", crd.Spec.Group, v.Name, crd.Spec.Names.Plural)); err != nil {
				return err
			}
		}
		groups[crd.Spec.Group] = true
	}
	for group := range groups {
		if err := s.announce(ctx, group); err != nil {
			return err
		}
	}
	return nil
}

func readCRDs(file string) ([]apiextensions.CustomResourceDefinition, error) {
	if file == "" {
		return nil, nil
	}
	data, err := os.ReadFile(file)
	if err != nil {
		return nil, err
	}
	var out []apiextensions.CustomResourceDefinition
	d := yaml.NewYAMLOrJSONDecoder(bytes.NewReader(data), 4096)
	for {
		var crd apiextensions.CustomResourceDefinition
		err := d.Decode(&crd)
		if errors.Is(err, io.EOF) {
			return out, nil
		}
		if err != nil {
			return nil, fmt.Errorf("read %s: %w", file, err)
		}
		if crd.Name != "" {
			out = append(out, crd)
		}
	}
}

// poll asks path until it is answered with 200.
func (s *server) poll(ctx context.Context, path string) error {
	client, err := rest.HTTPClientFor(s.loopback)
	if err != nil {
		return err
	}
	var last string
	err = wait.PollUntilContextCancel(ctx, pollEvery, true, func(ctx context.Context) (bool, error) {
		req, err := http.NewRequestWithContext(ctx, http.MethodGet, s.loopback.Host+path, nil)
		if err != nil {
			return false, err
		}
		req.Header.Set("User-Agent", "apiserver-poll")
		resp, err := client.Do(req)
		if err != nil {
			last = err.Error()
			return false, nil
		}
		defer resp.Body.Close()
		last = resp.Status
		return resp.StatusCode == http.StatusOK, nil
	})
	if err != nil {
		return fmt.Errorf("wait for %s (%s): %w", path, last, err)
	}
	return nil
}

// announce adds a group to the plain answer of /apis, as an aggregator would.
// The aggregated answer has it already.
func (s *server) announce(ctx context.Context, group string) error {
	c, err := clientset.NewForConfig(s.loopback)
	if err != nil {
		return err
	}
	var g metav1.APIGroup
	if err := c.RESTClient().Get().AbsPath("/apis", group).Do(ctx).Into(&g); err != nil {
		return fmt.Errorf("read group %s: %w", group, err)
	}
	s.discovery.AddGroup(g)
	return nil
}
