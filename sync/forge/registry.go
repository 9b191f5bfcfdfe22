package forge

import (
	"context"
	"net/http"
	"net/url"
)

// registry is the list of webhooks of a repository: a list at one path, and each
// below it by its ID. T is the wire form of one.
type registry[T any] struct {
	*caller
	place  Place
	list   string                 // path of the list
	size   string                 // parameter of a list: how many on a page
	change string                 // method by which one is changed
	read   func(T) Hook           // from the wire form
	write  func(Hook) T           // to it; without an id it is a new one
	more   func(http.Header) bool // whether a list has another page
}

func (g *registry[T]) one(id string) string { return g.list + "/" + url.PathEscape(id) }

func (g *registry[T]) hooks(ctx context.Context, page int) ([]Hook, bool, error) {
	r := request{op: "list webhooks of " + g.place.Path, method: http.MethodGet, path: g.list, query: pageOf(page, g.size)}
	a, err := g.do(ctx, r)
	if err != nil {
		return nil, false, err
	}
	found, err := into[[]T](g.caller, r, a)
	return hooksOf(found, g.read), g.more(a.header), err
}

func hooksOf[T any](found []T, read func(T) Hook) []Hook {
	out := make([]Hook, len(found))
	for i, f := range found {
		out[i] = read(f)
	}
	return out
}

func (g *registry[T]) hook(ctx context.Context, id string) (Hook, error) {
	h, err := ask[T](ctx, g.caller, request{op: "read webhook of " + g.place.Path, method: http.MethodGet, path: g.one(id)})
	return g.read(h), err
}

func (g *registry[T]) create(ctx context.Context, h Hook) (Hook, error) {
	h.ID = "" // it may be that of a deleted webhook
	made, err := ask[T](ctx, g.withSecret(h.Secret), request{op: "create webhook of " + g.place.Path, method: http.MethodPost,
		path: g.list, body: g.write(h)})
	return g.read(made), err
}

func (g *registry[T]) edit(ctx context.Context, h Hook) (Hook, error) {
	made, err := ask[T](ctx, g.withSecret(h.Secret), request{op: "edit webhook of " + g.place.Path, method: g.change,
		path: g.one(h.ID), body: g.write(h)})
	return g.read(made), err
}

func (g *registry[T]) remove(ctx context.Context, id string) error {
	return send(ctx, g.caller, request{op: "delete webhook of " + g.place.Path, method: http.MethodDelete, path: g.one(id)})
}
