package door_test

import (
	"bytes"
	"context"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"sync"
	"sync/atomic"
	"testing"

	"dbcontroller.dev/internal/access"
	"dbcontroller.dev/internal/access/door"
	"dbcontroller.dev/internal/base/limits"
)

const viewer, operator = "viewer-0123456789abcdef", "operator-0123456789abcdef"

// people is a lock that knows viewer and operator. before, if not nil, is called for each request
// whose caller is asked for.
func people(t *testing.T, before func(*http.Request)) *door.Lock {
	t.Helper()
	path := filepath.Join(t.TempDir(), "tokens")
	if err := os.WriteFile(path, []byte("app "+viewer+"\nann "+operator), 0o600); err != nil {
		t.Fatal(err)
	}
	tokens, err := access.OpenTokens(path, nil)
	if err != nil {
		t.Fatal(err)
	}
	policy, err := access.NewPolicy([]access.Grant{{Role: access.Viewer, Identity: "token:app"}, {Role: access.Operator, Identity: "token:ann"}})
	if err != nil {
		t.Fatal(err)
	}
	return &door.Lock{Authenticators: []access.Authenticator{hooked{tokens, before}}, Policy: policy}
}

type hooked struct {
	access.Authenticator
	before func(*http.Request)
}

func (h hooked) Authenticate(ctx context.Context, r *http.Request) (access.Identity, error) {
	if h.before != nil {
		h.before(r)
	}
	return h.Authenticator.Authenticate(ctx, r)
}

// ask makes a request and returns the code of the answer. Without a body it is a GET.
func ask(t *testing.T, d *door.Door, token, query string, body []byte, header ...string) int {
	t.Helper()
	method, content := http.MethodGet, io.Reader(nil)
	if body != nil {
		method, content = http.MethodPost, bytes.NewReader(body)
	}
	req, err := http.NewRequest(method, "http://"+d.Addr()+"/x?"+query, content)
	if err != nil {
		t.Error(err)
		return 0
	}
	req.Header.Set("Authorization", "Bearer "+token)
	for i := 0; i+1 < len(header); i += 2 {
		req.Header.Set(header[i], header[i+1])
	}
	client := &http.Client{Transport: &http.Transport{DisableKeepAlives: true}}
	res, err := client.Do(req)
	if err != nil {
		t.Error(err)
		return 0
	}
	defer res.Body.Close()
	return res.StatusCode
}

// TestOperatorsAreNotLockedOut: an application that holds every request it gets, or all the memory
// that it gets, leaves room for operators.
func TestOperatorsAreNotLockedOut(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct {
		name          string
		cfg           door.Config
		body          []byte // of each request
		asked, held   int64
		refused       int // the code of the answer
		operatorsBody []byte
	}{
		{"requests", door.Config{Requests: 16}, nil, 16, 14, http.StatusServiceUnavailable, nil},
		{"memory", door.Config{BodyBytes: 1000, BodiesBytes: 16000 * limits.BodyCopies}, make([]byte, 1000), 32, 14, http.StatusBadRequest, make([]byte, 1000)},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			hold := make(chan struct{})
			var held, refused atomic.Int64
			tc.cfg.Lock = people(t, nil)
			d := open(t, tc.cfg, func(w http.ResponseWriter, r *http.Request) {
				if _, err := io.Copy(io.Discard, r.Body); err != nil {
					w.WriteHeader(http.StatusBadRequest)
					return
				}
				if r.URL.Query().Has("hold") {
					held.Add(1)
					<-hold
				}
			})
			var wg sync.WaitGroup
			// In turn, so that none is refused for what another one had read when it was refused.
			for i := range tc.asked {
				wg.Go(func() {
					if ask(t, d, viewer, "hold", tc.body) == tc.refused {
						refused.Add(1)
					}
				})
				until(t, "every request is held or refused", func() bool { return held.Load()+refused.Load() == i+1 })
			}
			if held.Load() != tc.held {
				t.Errorf("%d are held, want %d", held.Load(), tc.held)
			}
			if code := ask(t, d, viewer, "", tc.body); code != tc.refused {
				t.Errorf("a viewer's next request: %d", code)
			}
			if code := ask(t, d, operator, "", tc.operatorsBody); code != http.StatusOK {
				t.Errorf("an operator's request: %d", code)
			}
			close(hold)
			wg.Wait()
		})
	}
}

// TestNobodyHoldsMemoryUnknown: a request whose caller is not known yet, as while an issuer hangs,
// holds no memory.
func TestNobodyHoldsMemoryUnknown(t *testing.T) {
	t.Parallel()
	hold, bomb := make(chan struct{}), small(t, 900)
	var waiting, ended atomic.Int64
	d := open(t, door.Config{BodyBytes: 1000, BodiesBytes: 3000 * limits.BodyCopies, Lock: people(t, func(r *http.Request) {
		if r.URL.Query().Has("hold") {
			waiting.Add(1)
			<-hold
		}
	})}, echo)
	var wg sync.WaitGroup
	for range 3 {
		wg.Go(func() {
			ask(t, d, "nobody", "hold", bomb, "Content-Encoding", "gzip")
			ended.Add(1)
		})
		wg.Go(func() {
			ask(t, d, "nobody", "hold&base64=1&compression=gzip&message="+url(bomb), nil)
			ended.Add(1)
		})
	}
	until(t, "every request waits", func() bool { return waiting.Load()+ended.Load() == 6 })
	if n := ended.Load(); n > 0 {
		t.Errorf("%d are answered before the caller is known", n)
	}
	if code := ask(t, d, operator, "", bomb, "Content-Encoding", "gzip"); code != http.StatusOK {
		t.Errorf("an operator's request: %d", code)
	}
	close(hold)
	wg.Wait()
}
