package forward_test

import (
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"
	"time"

	"dbcontroller.dev/appclient/client"
	"dbcontroller.dev/internal/access/accesstest"
	"dbcontroller.dev/internal/control/forward"
)

func region(name string, at ...string) forward.Region {
	return forward.Region{Name: name, Controllers: client.Config{Server: strings.Join(at, ",")}}
}

type listed struct {
	Deployments []struct{ Name, Region string }
	Unreadable  []struct{ Name, Reason string }
	Regions     []struct{ Name, Unavailable string }
}

// TestRegions: lists have the deployments of all regions, verbs reach them, and a name that two regions have
// is called in none by mistake.
func TestRegions(t *testing.T) {
	t.Parallel()
	both := "services/shop/deployments/both"
	eu := start(t, etcd(t, far, ours, both), setup{id: "eu", runs: []string{far, ours, both}})
	us := start(t, etcd(t, both), setup{id: "us", runs: []string{both}})
	a := start(t, etcd(t, ours), setup{id: "a", runs: []string{ours}, regions: []forward.Region{region("eu", eu.url), region("us", us.url)}})
	var l listed
	if code, text := a.call(t, "", "ListDeployments", named{}, &l); code != "" {
		t.Fatal(code, text)
	}
	got := fmt.Sprintf("%+v", l)
	want := "{Deployments:[{Name:" + ours + " Region:} {Name:" + both + " Region:eu} {Name:" + far + " Region:eu}] " +
		"Unreadable:[{Name:" + ours + " Reason:" + ours + ": region eu has a deployment of this name, too: ask the controllers there about it} " +
		"{Name:" + both + " Reason:" + both + ": regions eu and us both have a deployment of this name: ask the controllers of one of them}] " +
		"Regions:[{Name:eu Unavailable:} {Name:us Unavailable:}]}"
	if got != want {
		t.Errorf("got  %s\nwant %s", got, want)
	}
	// A region's own list does not ask on.
	if eu.count("ListDeployments") != 1 {
		t.Errorf("%d lists at eu", eu.count("ListDeployments"))
	}
	a.knows(t, far, "eu")
	a.knows(t, ours, "a")
	var d struct{ Region, CurrentVersion string }
	if code, text := a.call(t, "", "GetDeployment", named{"name": far}, &d); code != "" || d.Region != "eu" || d.CurrentVersion != "v1" {
		t.Errorf("%s %s %+v", code, text, d)
	}
	// Without a list before: the regions are asked.
	b := start(t, etcd(t, ours), setup{id: "b", runs: []string{ours}, regions: []forward.Region{region("eu", eu.url), region("us", us.url)}})
	if code, text := b.call(t, "", "SetPace", named{"name": far, "paused": true}, &d); code != "" || d.Region != "eu" {
		t.Errorf("%s %s %+v", code, text, d)
	}
	if code, text := b.call(t, "", "SetPace", named{"name": both, "paused": true}, nil); code != "NOT_IN_THIS_STATE" || text != "regions eu and us both have "+both+": ask the controllers of one of them" {
		t.Errorf("%s %s", code, text)
	}
	if code, text := b.call(t, "", "GetDeployment", named{"name": "services/shop/deployments/nowhere"}, nil); code != "not_found" {
		t.Errorf("%s %s", code, text)
	}
	if code, text := b.call(t, "", "GetDeployment", named{"name": "nonsense"}, nil); code != "invalid_argument" {
		t.Errorf("%s %s", code, text)
	}
	// A creation is of this coordination store.
	if code, text := b.call(t, "", "CreateDeployment", named{"name": "services/shop/deployments/new", "version": "v1"}, nil); code != "" || eu.count("CreateDeployment") != 0 {
		t.Errorf("%s %s", code, text)
	}
}

// TestRegionsThatAreAway: they do not fail the list, and delay it by a bounded time.
func TestRegionsThatAreAway(t *testing.T) {
	t.Parallel()
	closed := "http://" + accesstest.ClosedPort(t)
	slow := func(_ http.ResponseWriter, r *http.Request) bool {
		_, _ = io.Copy(io.Discard, r.Body) // afterwards the server notices that its caller is gone
		<-r.Context().Done()
		return true
	}
	huge := func(w http.ResponseWriter, _ *http.Request) bool {
		w.Header().Set("Content-Type", "application/proto")
		for range 10 {
			_, _ = w.Write(make([]byte, 1<<20))
		}
		return true
	}
	hangs, floods := start(t, etcd(t), setup{id: "hangs", broken: slow}), start(t, etcd(t), setup{id: "floods", broken: huge})
	eu := start(t, etcd(t, far), setup{id: "eu", runs: []string{far}})
	a := start(t, etcd(t, ours), setup{id: "a", runs: []string{ours}, regions: []forward.Region{
		region("gone", closed), region("hangs", hangs.url), region("floods", floods.url), region("eu", eu.url),
	}})
	begun := time.Now()
	var l listed
	if code, text := a.call(t, "", "ListDeployments", named{}, &l); code != "" {
		t.Fatal(code, text)
	}
	if took := time.Since(begun); took > patience/2 {
		t.Errorf("the list took %v", took)
	}
	if len(l.Deployments) != 2 || len(l.Regions) != 4 || l.Deployments[1].Region != "eu" || l.Regions[3].Unavailable != "" {
		t.Fatalf("%+v", l)
	}
	for i, part := range []string{"region gone at " + closed + " does not answer", "region hangs at " + hangs.url + " does not answer within 3s", "region floods at " + floods.url} {
		if !strings.Contains(l.Regions[i].Unavailable, part) {
			t.Errorf("%q lacks %q", l.Regions[i].Unavailable, part)
		}
	}
	// A name that none of the others has may be one of a region that is away.
	if code, text := a.call(t, "", "GetDeployment", named{"name": "services/shop/deployments/nowhere"}, nil); code != "REGION_UNAVAILABLE" || !strings.Contains(text, "region gone at") {
		t.Errorf("%s %s", code, text)
	}
	// What is known of eu works meanwhile.
	if code, text := a.call(t, "", "SetPace", named{"name": far, "paused": true}, nil); code != "" {
		t.Errorf("%s %s", code, text)
	}
	eu.end()
	if code, text := a.call(t, "", "SetPace", named{"name": far, "paused": false}, nil); code != "REGION_UNAVAILABLE" {
		t.Errorf("%s %s", code, text)
	}
}

// TestListOfManyControllers: 200 deployments of 20 regions, of which one hangs, and of a controller that is
// gone. The list comes in a bounded time, and names what is missing.
func TestListOfManyControllers(t *testing.T) {
	t.Parallel()
	names := func(i int) (out []string) {
		for n := range 10 {
			out = append(out, fmt.Sprintf("services/shop/deployments/r%02d-%d", i, n))
		}
		return out
	}
	hang := func(_ http.ResponseWriter, r *http.Request) bool {
		_, _ = io.Copy(io.Discard, r.Body)
		<-r.Context().Done()
		return true
	}
	var regions []forward.Region
	for i := range 19 {
		s := setup{id: fmt.Sprint("r", i), at: "none"}
		if i == 7 {
			s.broken = hang
		}
		regions = append(regions, region(fmt.Sprintf("r%02d", i), start(t, etcd(t, names(i)...), s).url))
	}
	store := etcd(t, names(19)...)
	start(t, store, setup{id: "gone", announces: names(19), at: "http://" + accesstest.ClosedPort(t)})
	a := start(t, store, setup{id: "a", regions: regions})
	var l listed
	if code, text := a.call(t, "", "ListDeployments", named{}, &l); code != "" || len(l.Deployments) != 190 || len(l.Regions) != 19 {
		t.Fatalf("%s %s: %d deployments, %d regions", code, text, len(l.Deployments), len(l.Regions))
	}
	for i, r := range l.Regions {
		if (i == 7) != (r.Unavailable != "") || i == 7 && !strings.HasSuffix(r.Unavailable, "does not answer within 3s") {
			t.Errorf("%+v", r)
		}
	}
}
