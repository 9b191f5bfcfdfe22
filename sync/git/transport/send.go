package transport

import "net/http"

// Send sends a request with what the answer before said for it, and with the
// credentials of the remote where own says so. It follows no redirect. leave ends the visit.
func (c *Call) Send(req *http.Request, header map[string]string, own bool) (res *http.Response, leave func(), err error) {
	creds := c.Target.Creds
	if !own || c.Addr.Scheme == "ssh" {
		creds = creds.ForOtherHost()
	}
	web, err := c.client.httpClient(creds)
	if err != nil {
		return nil, nil, err
	}
	for name, value := range header {
		req.Header.Set(name, value)
	}
	req.Header.Set("Accept-Encoding", "identity")
	req.Header.Set("User-Agent", "limpet")
	if creds != nil && req.Header.Get("Authorization") == "" {
		switch {
		case creds.Bearer != "":
			req.Header.Set("Authorization", "Bearer "+creds.Bearer)
		case creds.Password != "":
			req.SetBasicAuth(creds.Username, creds.Password)
		}
	}
	end, err := c.visit(req.URL.Host)
	if err != nil {
		return nil, nil, err
	}
	c.requests.Add(1)
	asked := req.Context()
	if own {
		asked = c.client.asked.Watch(asked, c.asks(req.URL.Host))
	}
	res, err = web.Transport.(wire).next.RoundTrip(req.WithContext(asked))
	if err != nil {
		end()
		return nil, nil, err
	}
	res.Body = counted{res.Body, c}
	return res, func() {
		res.Body.Close()
		end()
	}, nil
}
