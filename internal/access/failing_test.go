package access

import (
	"context"
	"net/http"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/zap"
)

type hangs struct{ asked *atomic.Int64 }

func (h hangs) RoundTrip(r *http.Request) (*http.Response, error) {
	h.asked.Add(1)
	<-r.Context().Done()
	return nil, r.Context().Err()
}

// TestFailureCountsFromItsEnd: an issuer that hangs is asked again some time after the try has ended,
// however long that took. Callers until then get the failure at once.
func TestFailureCountsFromItsEnd(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		issuer, err := OpenIssuer(IssuerConfig{Name: "corp", Issuer: "https://issuer.example", Audience: "dbcontroller"}, zap.NewNop())
		if err != nil {
			t.Fatal(err)
		}
		h := hangs{new(atomic.Int64)}
		issuer.client.Transport.(*modest).next = h //nolint:forcetypeassert // OpenIssuer made it
		ask := func(what string, takes time.Duration, asked int64) {
			t.Helper()
			ctx, cancel := context.WithTimeout(t.Context(), waitTime)
			defer cancel()
			begun := time.Now()
			if _, err := issuer.discovered(ctx); err == nil {
				t.Errorf("%s: it has keys", what)
			}
			if took := time.Since(begun); took != takes || h.asked.Load() != asked {
				t.Errorf("%s: it took %s, and the issuer was asked %d times, want %s and %d", what, took, h.asked.Load(), takes, asked)
			}
		}
		ask("the first", waitTime, 1)
		time.Sleep(fetchTimeout - waitTime + time.Second)
		ask("a second after the try", 0, 1)
		time.Sleep(fetchEvery)
		ask("later", waitTime, 2)
		time.Sleep(fetchTimeout) // the try ends
	})
}
