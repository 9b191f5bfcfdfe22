package main

import (
	"bufio"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"log"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"os"
	"regexp"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/rest"
)

const (
	jobsOfARound  = 400
	atOnce        = 16 // clients, and drivers of an agent
	jobTargets    = 32 // Repositories that jobs are for
	apiToken      = "ProvisioningAdminToken"
	jobsOfHistory = 2000
)

// where is the API that agents work on.
type where bool

const (
	embedded where = false
	remote   where = true
)

// apiServer is the embedded API in a process of its own.
type apiServer struct {
	url    string
	client dynamic.Interface
}

func (b *bench) apiServer(binary string) (*apiServer, error) {
	a, err := b.agent(binary)
	if err != nil {
		return nil, err
	}
	cmd := a.command("api", "--listen", "127.0.0.1:0", "--sign-listen", "127.0.0.1:0")
	out, err := cmd.StderrPipe()
	if err != nil {
		return nil, err
	}
	if err := cmd.Start(); err != nil {
		return nil, err
	}
	b.after(func() { _ = cmd.Process.Kill(); _ = cmd.Wait() })
	s := &apiServer{}
	for lines := bufio.NewScanner(out); s.url == "" && lines.Scan(); {
		s.url = regexp.MustCompile(`https://[0-9.:]+`).FindString(lines.Text())
	}
	go io.Copy(io.Discard, out) // until it ends
	s.client, err = dynamic.NewForConfig(&rest.Config{
		Host:            s.url,
		BearerToken:     apiToken,
		QPS:             -1,
		TLSClientConfig: rest.TLSClientConfig{Insecure: true},
	})
	return s, err
}

// targets makes Repositories whose sync is off: a pull of one is claimed, runs, ends and is
// recorded. Nothing in limpet does less.
func (b *bench) targets(client dynamic.Interface) error {
	_, url, err := b.origin(sizes["small"])
	if err != nil {
		return err
	}
	for i := range jobTargets {
		o := repository(fmt.Sprintf("r%d", i), url, "")
		o["spec"].(object)["sync"].(object)["enabled"] = false
		err := eventually(func() error {
			_, err := client.Resource(repositories).Namespace(namespace).Create(context.Background(),
				&unstructured.Unstructured{Object: o}, metav1.CreateOptions{})
			return err
		})
		if err != nil {
			return err
		}
	}
	return nil
}

// each does n things, some at once.
func each(n, atOnce int, do func(i int) error) error {
	var next atomic.Int64
	var all sync.WaitGroup
	failed := make([]error, atOnce)
	for w := range atOnce {
		all.Go(func() {
			for i := int(next.Add(1)); i <= n && failed[w] == nil; i = int(next.Add(1)) {
				failed[w] = do(i)
			}
		})
	}
	all.Wait()
	return errors.Join(failed...)
}

// create makes n jobs and waits until agents have removed them.
func create(client dynamic.Interface, n int) error {
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	of := client.Resource(jobs).Namespace(namespace)
	list, err := of.List(ctx, metav1.ListOptions{})
	if err != nil {
		return err
	}
	w, err := of.Watch(ctx, metav1.ListOptions{ResourceVersion: list.GetResourceVersion()})
	if err != nil {
		return err
	}
	defer w.Stop()
	made := make(chan error, 1)
	go func() {
		made <- each(n, atOnce, func(i int) error {
			_, err := of.Create(ctx, job(fmt.Sprintf("r%d", i%jobTargets)), metav1.CreateOptions{})
			return err
		})
	}()
	left := n
	for e := range w.ResultChan() {
		if e.Type == watch.Deleted {
			left--
		}
		if left == 0 {
			return <-made
		}
	}
	return fmt.Errorf("%d of %d jobs are left", left, n)
}

// burn has agents do empty jobs, one on its own API or several on another.
func burn(agents int, on where) func(*bench, string) (step, error) {
	return func(b *bench, binary string) (step, error) {
		client, err := b.workers(agents, on, binary)
		if err != nil {
			return nil, err
		}
		if err := b.targets(client); err != nil {
			return nil, err
		}
		if err := create(client, jobTargets); err != nil {
			return nil, err
		}
		return func() (sample, error) {
			began := time.Now()
			err := create(client, jobsOfARound)
			return sample{wall: time.Since(began), count: jobsOfARound}, err
		}, nil
	}
}

// workers starts agents and returns a client of their API.
func (b *bench) workers(agents int, on where, binary string) (dynamic.Interface, error) {
	drivers := []string{"--drivers", fmt.Sprint(atOnce)}
	if on == embedded {
		a, err := b.agent(binary)
		if err != nil {
			return nil, err
		}
		a.flags = append(a.flags, drivers...)
		return a.client, a.start()
	}
	s, err := b.apiServer(binary)
	if err != nil {
		return nil, err
	}
	for range agents {
		a, err := b.on(s.url, binary, append(drivers, "--controllers", "off", "--sources", "off")...)
		if err != nil {
			return nil, err
		}
		if err := a.start(); err != nil {
			return nil, err
		}
	}
	return s.client, nil
}

// eventually repeats what fails only because a process has just started.
func eventually(do func() error) error {
	var err error
	for until := time.Now().Add(10 * time.Second); time.Now().Before(until); time.Sleep(5 * time.Millisecond) {
		if err = do(); err == nil {
			return nil
		}
	}
	return err
}

// bare does what an agent cannot do without, for jobs that it creates: claim, finish, delete.
func bare(b *bench) (step, error) {
	s, err := b.apiServer(b.limpet)
	if err != nil {
		return nil, err
	}
	if err := b.targets(s.client); err != nil {
		return nil, err
	}
	of := s.client.Resource(jobs).Namespace(namespace)
	ctx := context.Background()
	one := func(i int) error {
		u, err := of.Create(ctx, job(fmt.Sprintf("r%d", i%jobTargets)), metav1.CreateOptions{})
		if err != nil {
			return err
		}
		u.SetLabels(map[string]string{"provisioning.grafana.app/claim": fmt.Sprint(time.Now().UnixMilli())})
		if u, err = of.Update(ctx, u, metav1.UpdateOptions{}); err != nil {
			return err
		}
		u.Object["status"] = object{"state": "success"}
		if u, err = of.Update(ctx, u, metav1.UpdateOptions{}); err != nil {
			return err
		}
		return of.Delete(ctx, u.GetName(), metav1.DeleteOptions{})
	}
	return func() (sample, error) {
		began := time.Now()
		err := each(jobsOfARound, atOnce, one)
		return sample{wall: time.Since(began), count: jobsOfARound}, err
	}, nil
}

// proxy is in front of an API and counts what is asked about jobs.
type proxy struct {
	*httptest.Server
	calls     atomic.Int64
	conflicts atomic.Int64 // of writes
	claimed   chan struct{}
}

func (b *bench) proxy(to *apiServer) (*proxy, error) {
	target, err := url.Parse(to.url)
	if err != nil {
		return nil, err
	}
	p := &proxy{claimed: make(chan struct{}, 1)}
	forward := httputil.NewSingleHostReverseProxy(target)
	forward.FlushInterval = -1
	forward.ErrorLog = log.New(io.Discard, "", 0) // agents end while they watch
	forward.Transport = &http.Transport{
		TLSClientConfig:     &tls.Config{InsecureSkipVerify: true},
		MaxIdleConnsPerHost: atOnce,
	}
	forward.ModifyResponse = func(r *http.Response) error {
		if r.Request.Method == http.MethodPut && r.StatusCode == http.StatusConflict {
			p.conflicts.Add(1)
		}
		return nil
	}
	p.Server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if strings.Contains(r.URL.Path, "jobs") && r.URL.Query().Get("watch") == "" {
			p.calls.Add(1)
		}
		if r.Method == http.MethodPut {
			select {
			case p.claimed <- struct{}{}:
			default:
			}
		}
		forward.ServeHTTP(w, r)
	}))
	b.after(func() { p.CloseClientConnections(); p.Close() })
	return p, nil
}

// proxied is an API with Repositories, and a proxy in front of it.
func (b *bench) proxied(binary string) (*proxy, *apiServer, error) {
	s, err := b.apiServer(binary)
	if err != nil {
		return nil, nil, err
	}
	if err := b.targets(s.client); err != nil {
		return nil, nil, err
	}
	p, err := b.proxy(s)
	return p, s, err
}

// on is an agent on another API. It does not run yet.
func (b *bench) on(url, binary string, flags ...string) (*agent, error) {
	a, err := b.agent(binary)
	if err != nil {
		return nil, err
	}
	a.flags = append([]string{"--daemon", "--log-level", "warn", "--provisioning-server-url", url, "--token", apiToken}, flags...)
	return a, nil
}

// counted counts what agents ask while they do empty jobs.
func counted(agents int, of func(*proxy) int64) func(*bench, string) (step, error) {
	return func(b *bench, binary string) (step, error) {
		p, s, err := b.proxied(binary)
		if err != nil {
			return nil, err
		}
		for range agents {
			a, err := b.on(p.URL, binary, "--controllers", "off", "--sources", "off")
			if err != nil {
				return nil, err
			}
			if err := a.start(); err != nil {
				return nil, err
			}
		}
		// Agents that start together have yet to learn of each other.
		if err := create(s.client, jobsOfARound); err != nil {
			return nil, err
		}
		return func() (sample, error) {
			before := of(p)
			err := create(s.client, jobsOfARound)
			return sample{calls: of(p) - before, count: jobsOfARound}, err
		}, nil
	}
}

// coldStart starts an agent for which a job waits.
func coldStart(b *bench, binary string) (step, error) {
	p, s, err := b.proxied(binary)
	if err != nil {
		return nil, err
	}
	a, err := b.on(p.URL, binary, "--controllers", "off", "--sources", "off")
	if err != nil {
		return nil, err
	}
	if err := a.start(); err != nil {
		return nil, err
	}
	if err := create(s.client, jobsOfHistory); err != nil {
		return nil, err
	}
	if _, err := a.stop(); err != nil {
		return nil, err
	}
	return func() (sample, error) {
		for len(p.claimed) > 0 {
			<-p.claimed
		}
		of := s.client.Resource(jobs).Namespace(namespace)
		u, err := of.Create(context.Background(), job("r0"), metav1.CreateOptions{})
		if err != nil {
			return sample{}, err
		}
		if err := a.start(); err != nil {
			return sample{}, err
		}
		select {
		case <-p.claimed:
		case <-time.After(patience):
			log, _ := os.ReadFile(a.home + "/log")
			return sample{}, fmt.Errorf("no claim: %s", log)
		}
		took := time.Since(a.began)
		if err := eventually(func() error {
			if _, err := of.Get(context.Background(), u.GetName(), metav1.GetOptions{}); err == nil {
				return errors.New("the job is still there")
			}
			return nil
		}); err != nil {
			return sample{}, err
		}
		spent, err := a.stop()
		spent.wall = took
		return spent, err
	}, nil
}
