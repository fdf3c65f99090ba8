package door_test

import (
	"net/http"
	"os"
	"path/filepath"
	"sync"
	"sync/atomic"
	"testing"

	"dbcontroller.dev/access"
	"dbcontroller.dev/access/door"
)

// TestOperatorsAreNotLockedOut: an application that holds every request it gets leaves room for
// operators.
func TestOperatorsAreNotLockedOut(t *testing.T) {
	t.Parallel()
	const viewer, operator = "viewer-0123456789abcdef", "operator-0123456789abcdef"
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
	hold := make(chan struct{})
	var held, refused atomic.Int64
	d := open(t, door.Config{Requests: 16, Lock: &door.Lock{Authenticators: []access.Authenticator{tokens}, Policy: policy}}, func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Query().Has("hold") {
			held.Add(1)
			<-hold
		}
	})
	client := &http.Client{Transport: &http.Transport{DisableKeepAlives: true}}
	get := func(token, query string) int {
		req, err := http.NewRequest(http.MethodGet, "http://"+d.Addr()+"/x?"+query, nil)
		if err != nil {
			t.Error(err)
			return 0
		}
		req.Header.Set("Authorization", "Bearer "+token)
		res, err := client.Do(req)
		if err != nil {
			t.Error(err)
			return 0
		}
		defer res.Body.Close()
		return res.StatusCode
	}
	var wg sync.WaitGroup
	for range 16 {
		wg.Go(func() {
			if get(viewer, "hold") == http.StatusServiceUnavailable {
				refused.Add(1)
			}
		})
	}
	until(t, "every request is held or refused", func() bool { return held.Load()+refused.Load() == 16 })
	if held.Load() != 14 {
		t.Errorf("%d are held", held.Load())
	}
	if code := get(viewer, ""); code != http.StatusServiceUnavailable {
		t.Errorf("a viewer's next request: %d", code)
	}
	if code := get(operator, ""); code != http.StatusOK {
		t.Errorf("an operator's request: %d", code)
	}
	close(hold)
	wg.Wait()
}
