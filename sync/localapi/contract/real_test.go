package contract

import (
	"os"
	"testing"

	"limpet/sync/api"
	"limpet/sync/apitest"
)

func TestMain(m *testing.M) { os.Exit(apitest.Main(m)) }

// The real machinery is the one that is right: a failure here is a fault of
// the contract.
func TestRealMachinery(t *testing.T) {
	Run(t, func(t *testing.T) Target {
		s := apitest.Real(t)
		c, err := api.Connect(t.Context(), api.Config{Server: s.URL, Token: s.Token, TLS: api.TLS{CAFile: s.CAFile, Insecure: new(bool)}})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(c.Close)
		return Target{URL: s.URL, HTTP: s.Client(t), Client: c}
	})
}
