package main

import (
	"context"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// writersOfAJob are as many as --max-sync-workers has them.
const writersOfAJob = 10

// pulledElsewhere is an agent that has pulled its repository into the API of another process.
func (b *bench) pulledElsewhere(binary string) (*agent, *apiServer, *origin, error) {
	o, url, err := b.origin(b.size)
	if err != nil {
		return nil, nil, nil, err
	}
	head, err := o.head()
	if err != nil {
		return nil, nil, nil, err
	}
	s, err := b.apiServer(binary)
	if err != nil {
		return nil, nil, nil, err
	}
	err = eventually(func() error {
		_, err := s.client.Resource(repositories).Namespace(namespace).Create(context.Background(),
			&unstructured.Unstructured{Object: repository("r", url, "")}, metav1.CreateOptions{})
		return err
	})
	if err != nil {
		return nil, nil, nil, err
	}
	a, err := b.on(s.url, binary, "--controllers", "on")
	if err != nil {
		return nil, nil, nil, err
	}
	a.client = s.client
	if err := a.start(); err != nil {
		return nil, nil, nil, err
	}
	return a, s, o, a.await(repositories, "r", pulled(head))
}

// writes is a pull of a commit that changes each file.
func writes(b *bench, binary string) (step, error) {
	a, _, o, err := b.pulledElsewhere(binary)
	if err != nil {
		return nil, err
	}
	return func() (sample, error) {
		commit, err := o.edit(o.files)
		if err != nil {
			return sample{}, err
		}
		return b.timed(a, float64(o.files), func() error {
			if err := a.pull("r"); err != nil {
				return err
			}
			return a.await(repositories, "r", pulled(commit))
		})
	}, nil
}

// bareWrites puts the same dashboards, each with a change.
func bareWrites(b *bench) (step, error) {
	a, s, o, err := b.pulledElsewhere(b.limpet)
	if err != nil {
		return nil, err
	}
	if _, err := a.stop(); err != nil {
		return nil, err
	}
	of := s.client.Resource(schema.GroupVersionResource{Group: "dashboard.grafana.app", Version: "v1", Resource: "dashboards"}).Namespace(namespace)
	ctx := context.Background()
	list, err := of.List(ctx, metav1.ListOptions{})
	if err != nil {
		return nil, err
	}
	round := int64(1000)
	return func() (sample, error) {
		round++
		began := time.Now()
		err := each(len(list.Items), writersOfAJob, func(i int) error {
			u := &list.Items[i-1]
			if err := unstructured.SetNestedField(u.Object, round, "spec", "version"); err != nil {
				return err
			}
			u, err := of.Update(ctx, u, metav1.UpdateOptions{})
			if err == nil {
				list.Items[i-1] = *u
			}
			return err
		})
		return sample{wall: time.Since(began), count: float64(o.files)}, err
	}, nil
}
