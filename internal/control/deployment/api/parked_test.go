package api_test

import (
	"encoding/base64"
	"fmt"
	"strings"
	"testing"

	"connectrpc.com/connect"
	"google.golang.org/protobuf/proto"

	pb "dbcontroller.dev/gen/dbcontroller/v1"
	"dbcontroller.dev/internal/base/memory"
	"dbcontroller.dev/internal/control/deployment/api"
	"dbcontroller.dev/internal/control/deployment/deploymenttest"
)

// TestParkedPages: the pages of a list have each parked group once, with the waiver of its kind, and none
// is much larger than 1 MiB. Pages count as memory of the request.
func TestParkedPages(t *testing.T) {
	t.Parallel()
	const groups, size, shards = 180, 20 << 10, 4
	w := deploymenttest.New(t).WithVersions(t)
	for i := range groups {
		p := deploymenttest.Parked(dir, i%shards, i)
		p.Error = strings.Repeat("x", size)
		if err := w.Store.Park(t.Context(), p); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := w.Store.WaiveKind(t.Context(), "packages"); err != nil {
		t.Fatal(err)
	}
	service := api.New(w.Coord, w.Store, api.Config{Upgrades: upgrades{}})
	budget := memory.NewBudget(4 << 20)
	list := func(budget *memory.Budget, most int64, token string) (*pb.ListParkedResponse, int64, error) {
		share := budget.Share(most)
		defer share.End()
		free := budget.Left()
		res, err := service.ListParked(memory.With(t.Context(), share), connect.NewRequest(&pb.ListParkedRequest{PageToken: token}))
		if err != nil {
			return nil, 0, err
		}
		return res.Msg, free - budget.Left(), nil
	}
	found, pages := map[string]bool{}, 0
	var former string
	for token := ""; ; pages++ {
		page, counted, err := list(budget, 4<<20, token)
		if err != nil {
			t.Fatal(err)
		}
		n := int64(proto.Size(page))
		if n > 3<<19 || counted < 2*n {
			t.Errorf("a page of %d bytes, counted as %d", n, counted)
		}
		for _, p := range page.GetParked() {
			if found[p.GetKey()] || !p.GetWaived() {
				t.Errorf("%s: again, or waived: %t", p.GetKey(), p.GetWaived())
			}
			found[p.GetKey()] = true
		}
		if former, token = token, page.GetNextPageToken(); token == "" {
			break
		}
	}
	for i := range groups {
		if !found[fmt.Sprintf("p-%d", i)] {
			t.Errorf("p-%d is in no page", i)
		}
	}
	if pages < 2 {
		t.Errorf("%d pages", pages+1)
	}
	for what, want := range map[string]connect.Code{"others": connect.CodeUnavailable, "itself": connect.CodeResourceExhausted} {
		budget, most := memory.NewBudget(4<<20), int64(4<<20)
		if what == "others" {
			budget.Share(2 << 20).Take(2 << 20)
		} else {
			most = 2 << 20
		}
		if _, _, err := list(budget, most, ""); connect.CodeOf(err) != want {
			t.Errorf("without room for %s: %v", what, err)
		}
	}
	a := serve(t, w)
	a.fails(t, "ListParked", `{"pageToken": "?"}`, `invalid_argument: page_token "?": want the next_page_token of a former answer`)
	// A switch ended the direction meanwhile.
	place, err := base64.RawURLEncoding.DecodeString(former)
	if err != nil {
		t.Fatal(err)
	}
	outdated := base64.RawURLEncoding.EncodeToString([]byte(strings.Replace(string(place), "v2", "v3", 1)))
	a.fails(t, "ListParked", `{"pageToken": "`+outdated+`"}`, `invalid_argument: page_token "`+outdated+`": want a token of the direction that is synced now: list again from the beginning`)
}

// TestParkedPageOfManyShards: small entries come first, and each shard behind them has one large entry.
// A page counts the bytes of a shard before it reads the next one, and lists each entry once.
func TestParkedPageOfManyShards(t *testing.T) {
	t.Parallel()
	const small, large, size = 60, 16, 256 << 10
	w := deploymenttest.New(t).WithVersions(t)
	for i := range small + large {
		p := deploymenttest.Parked(dir, max(0, i-small+1), i)
		if i >= small {
			p.Error = strings.Repeat("x", size)
		}
		if err := w.Store.Park(t.Context(), p); err != nil {
			t.Fatal(err)
		}
	}
	d, err := w.Store.Get(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	found := map[string]bool{}
	for place, pages := "", 0; ; pages++ {
		list, bytes, next, err := w.Store.ParkedPage(t.Context(), d, place, 1<<20)
		if err != nil {
			t.Fatal(err)
		}
		if bytes > 2<<20 {
			t.Errorf("page %d has %d bytes", pages, bytes)
		}
		for _, p := range list {
			if found[p.Key] {
				t.Errorf("%s again", p.Key)
			}
			found[p.Key] = true
		}
		if place = next; place == "" {
			break
		}
	}
	if len(found) != small+large {
		t.Errorf("%d entries of %d", len(found), small+large)
	}
}
