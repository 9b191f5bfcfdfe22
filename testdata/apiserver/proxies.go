package main

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"sync"

	"github.com/Shopify/toxiproxy/v2"
	"github.com/rs/zerolog"
)

// proxies are connections that go wrong: toxiproxy, by the names that the test
// gives them.
type proxies struct {
	toxi *toxiproxy.ApiServer

	mu     sync.Mutex // guards byName, and makes one change at a time
	byName map[string]*toxiproxy.Proxy
}

// proxyState is what a proxy is to be like. Toxics are toxiproxy's own, as
// {"type":"latency","attributes":{"latency":1000}}.
type proxyState struct {
	Name     string            `json:"name"`
	Upstream string            `json:"upstream"` // host:port; used when the proxy is made
	Listen   string            `json:"listen"`   // of the answer
	Down     bool              `json:"down"`     // refuses connections, and cuts those that are open
	Toxics   []json.RawMessage `json:"toxics"`
}

func newProxies() *proxies {
	return &proxies{toxi: toxiproxy.NewServer(toxiproxy.NewMetricsContainer(nil), zerolog.Nop()), byName: map[string]*toxiproxy.Proxy{}}
}

// set makes a proxy or changes it. Toxics of before are taken away.
func (p *proxies) set(ctx context.Context, want proxyState) (any, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	proxy := p.byName[want.Name]
	if proxy == nil {
		proxy = toxiproxy.NewProxy(p.toxi, want.Name, "127.0.0.1:0", want.Upstream)
		if err := proxy.Start(); err != nil {
			return nil, fmt.Errorf("start proxy: %w", err)
		}
		p.byName[want.Name] = proxy
	}
	switch {
	case want.Down && proxy.Enabled:
		proxy.Stop()
	case !want.Down && !proxy.Enabled:
		if err := proxy.Start(); err != nil {
			return nil, fmt.Errorf("start proxy again: %w", err)
		}
	}
	proxy.Toxics.ResetToxics(ctx)
	for _, toxic := range want.Toxics {
		if _, err := proxy.Toxics.AddToxicJson(bytes.NewReader(toxic)); err != nil {
			return nil, fmt.Errorf("toxic %s: %w", toxic, err)
		}
	}
	want.Listen = proxy.Listen
	return want, nil
}

// stop cuts all of them.
func (p *proxies) stop() error {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, proxy := range p.byName {
		proxy.Stop()
	}
	return nil
}
