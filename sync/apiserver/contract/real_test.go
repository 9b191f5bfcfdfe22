package contract

import (
	"os"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"limpet/sync/kube"
	"limpet/sync/testenv"
)

func TestMain(m *testing.M) { os.Exit(testenv.Main(m)) }

// The real machinery is the one that is right: a failure here is a fault of the contract.
func TestRealMachinery(t *testing.T) {
	t.Parallel()
	run(t, func(t *testing.T) target {
		s := testenv.Real(t)
		return target{URL: s.URL, HTTP: s.Client(t), Client: connect(t, s, kube.Config{Token: s.Token})}
	})
}

// connect makes limpet's own client of a real server, which it trusts by its CA.
func connect(t *testing.T, s *testenv.Server, c kube.Config) *kube.Client {
	t.Helper()
	checked := false
	c.Server, c.TLS = s.URL, kube.TLS{CAFile: s.CAFile, Insecure: &checked}
	client, err := kube.Connect(t.Context(), c)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(client.Close)
	return client
}

// Limpet's client gets in by token exchange over TLS, and its token is good
// for the group that is asked.
func TestTokenExchange(t *testing.T) {
	t.Parallel()
	s := testenv.Real(t)
	list := func(c *kube.Client, k kind) error {
		_, err := c.Resource(k.resource()).List(t.Context(), metav1.ListOptions{Limit: 1})
		return err
	}
	c := connect(t, s, kube.Config{Token: testenv.SignToken, TokenExchangeURL: s.SignURL})
	for _, k := range []kind{jobs, folders} {
		if err := list(c, k); err != nil {
			t.Errorf("%s with a token of its group: %v", k.plural, err)
		}
	}
	if err := list(connect(t, s, kube.Config{Token: "wrong", TokenExchangeURL: s.SignURL}), jobs); err == nil {
		t.Error("a wrong token was exchanged")
	}
}
