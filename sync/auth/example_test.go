package auth_test

import (
	"context"
	"fmt"

	"limpet/sync/auth"
)

// The first source that has credentials for a remote decides. They print without their secrets.
func ExampleChain() {
	site := func(_ context.Context, l auth.Lookup) (*auth.Credentials, error) {
		if !auth.SameHost(l.URL, "https://git.example.org/other") {
			return nil, nil
		}
		return &auth.Credentials{Username: "limpet", Password: "hunter2", Source: "the site's secret"}, nil
	}
	anyHost := func(context.Context, auth.Lookup) (*auth.Credentials, error) {
		return &auth.Credentials{Bearer: "t0ken", Source: "the default"}, nil
	}
	find := auth.Chain(site, anyHost)

	for _, url := range []string{"https://git.example.org/boards", "https://forge.example.net/boards"} {
		creds, err := find(context.Background(), auth.Lookup{Namespace: "default", Repository: "boards", URL: url})
		if err != nil {
			panic(err)
		}
		address, err := auth.ParseAddress(url)
		if err != nil {
			panic(err)
		}
		fmt.Println(address.Host, creds.Kind(), "from", creds.Source)
	}

	// Output:
	// git.example.org basic from the site's secret
	// forge.example.net bearer from the default
}
