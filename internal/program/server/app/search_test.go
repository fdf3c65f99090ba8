package app

import (
	"context"
	"encoding/json"
	"errors"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	"go.mongodb.org/mongo-driver/v2/bson"
	"go.uber.org/zap"

	"dbcontroller.dev/config"
	"dbcontroller.dev/internal/engine/sink"
	"dbcontroller.dev/internal/engine/sink/sinktest"
	"dbcontroller.dev/record"
	"dbcontroller.dev/upgradestate"
)

// fakeIndex finds the record that it is asked for.
type fakeIndex struct{ *sinktest.Memory }

var _ sink.Index = fakeIndex{}

func (fakeIndex) Search(_ context.Context, req record.SearchRequest) (record.SearchPage, error) {
	return record.SearchPage{Names: []string{req.Terms[0].Text}, Done: true}, nil
}

func (fakeIndex) Documents() (uint64, error) { return 3, nil }
func (fakeIndex) Close() error               { return nil }
func (fakeIndex) Remove() error              { return nil }

// failing is an index whose calls fail, and that notes how its use ends.
type failing struct {
	fakeIndex
	write, search error
	ended         *[]string
}

func (x failing) Write(ctx context.Context, items []sink.Item, st sink.State) error {
	if x.write != nil {
		return x.write
	}
	return x.fakeIndex.Write(ctx, items, st)
}

func (x failing) Search(context.Context, record.SearchRequest) (record.SearchPage, error) {
	return record.SearchPage{}, x.search
}

func (x failing) Close() error  { *x.ended = append(*x.ended, "closed"); return nil }
func (x failing) Remove() error { *x.ended = append(*x.ended, "removed"); return nil }

// TestFailedIndex: the use of an index ends when a write has failed, so that it is opened again. If it
// seems damaged again, it is deleted.
func TestFailedIndex(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct {
		err  error
		want []string
	}{
		{sink.ErrReopen, []string{"closed", "closed", "closed"}},
		{sink.ErrDamaged, []string{"closed", "removed", "closed"}},
	} {
		_, x, _, w := searchOf(t)
		var ended []string
		var damaged time.Time
		for range 3 {
			index := failing{fakeIndex{sinktest.NewMemory()}, tc.err, nil, &ended}
			if err := x.use(t.Context(), index, sink.New(w.Source, index, sinktest.Config()), &damaged); !errors.Is(err, tc.err) {
				t.Errorf("%v: %v", tc.err, err)
			}
			if index, f, _ := x.now(); index != nil || f != nil {
				t.Error("it is still in use")
			}
		}
		if diff := cmp.Diff(tc.want, ended); diff != "" {
			t.Errorf("%v (-want +got):\n%s", tc.err, diff)
		}
	}
}

// TestRebuildUnread: a rebuild deletes an index that could not be read.
func TestRebuildUnread(t *testing.T) {
	t.Parallel()
	_, x, _, w := searchOf(t)
	var ended []string
	index := failing{fakeIndex{sinktest.NewMemory()}, nil, sink.ErrUnread, &ended}
	used := make(chan error, 1)
	go func() {
		var damaged time.Time
		used <- x.use(t.Context(), index, sink.New(w.Source, index, sinktest.Config()), &damaged)
	}()
	if _, err := x.Search(t.Context(), record.SearchRequest{Kind: "items"}, time.Time{}); !errors.Is(err, sink.ErrUnread) {
		t.Fatal(err)
	}
	x.rebuild()
	<-used
	if diff := cmp.Diff([]string{"removed"}, ended); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

// TestVerifyOfAClosedIndex: a comparison ends when the use of its index ends.
func TestVerifyOfAClosedIndex(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s, x, f, _ := searchOf(t)
		x.set(fakeIndex{}, f, nil)
		res, ended := httptest.NewRecorder(), make(chan struct{})
		go func() {
			defer close(ended)
			s.verify(res, httptest.NewRequestWithContext(t.Context(), http.MethodPost, "/search/verify?version=v2", nil))
		}()
		synctest.Wait() // it waits for f, which does not follow
		x.set(nil, nil, nil)
		synctest.Wait()
		select {
		case <-ended:
		default:
			t.Fatal("it still waits")
		}
		if res.Code != http.StatusServiceUnavailable || !strings.Contains(res.Body.String(), "was closed meanwhile") {
			t.Errorf("%d %s", res.Code, res.Body)
		}
	})
}

// TestIsolated: a panic of the service's code is an error without values of the record.
func TestIsolated(t *testing.T) {
	t.Parallel()
	raw, err := bson.Marshal(bson.M{"_id": "a", "text": "hunter2secret"})
	if err != nil {
		t.Fatal(err)
	}
	for what, document := range map[string]sink.Transform{
		"a panic": func(r record.Record) (sink.Document, error) { panic("bad: " + r.Doc.Lookup("text").StringValue()) },
		"an error": func(r record.Record) (sink.Document, error) {
			return nil, errors.New("bad: " + r.Doc.Lookup("text").StringValue())
		},
	} {
		_, err := isolated(document)(record.Record{Kind: "items", Key: record.StringKey("a"), Doc: raw})
		if err == nil || !strings.Contains(err.Error(), "bad") || strings.Contains(err.Error(), "hunter2secret") {
			t.Errorf("%s: %v", what, err)
		}
	}
}

// searchOf has the index of v2 over a namespace in memory. It is closed.
func searchOf(t *testing.T) (*search, *searchIndex, *sink.Follower, *sinktest.World) {
	t.Helper()
	w := sinktest.NewWorld(t)
	cfg := config.Search{On: true, Lag: time.Minute, Wait: time.Hour}
	x := &searchIndex{version: "v2", cfg: cfg, log: zap.NewNop(), fields: map[string][]string{"items": {"text"}}, news: make(chan struct{})}
	f := sink.New(w.Source, sinktest.NewMemory(), sinktest.Config())
	return &search{cfg: cfg, log: zap.NewNop(), indexes: map[string]*searchIndex{"v2": x}}, x, f, w
}

func upgrading(id string, ready bool) upgradestate.Deployment {
	d := upgradestate.New("services/s/deployments/d", "v1", 1)
	d.Upgrade = &upgradestate.Upgrade{ID: id, TargetVersion: "v2"}
	if ready {
		d.Upgrade.ReadyShards = []int{0}
	}
	return d
}

// folderIndex is an index in a folder.
type folderIndex struct {
	fakeIndex
	folder string
}

func (x folderIndex) Remove() error { return os.RemoveAll(x.folder) }

// TestDropsRetiredIndex: the index of a version stays until the version is retired, and no other one
// goes with it.
func TestDropsRetiredIndex(t *testing.T) {
	t.Parallel()
	s, _, _, _ := searchOf(t)
	s.indexes["v1"] = &searchIndex{version: "v1"}
	folder := t.TempDir()
	s.engine = func(folder string, _ map[string][]string, _ string) (sink.Index, error) {
		return folderIndex{folder: folder}, nil
	}
	for _, version := range []string{"v1", "v2"} {
		if err := os.MkdirAll(filepath.Join(folder, version, "store"), 0o700); err != nil {
			t.Fatal(err)
		}
	}
	left := func(want ...string) {
		t.Helper()
		entries, err := os.ReadDir(folder)
		var got []string
		for _, e := range entries {
			got = append(got, e.Name())
		}
		if diff := cmp.Diff(want, got); diff != "" || err != nil {
			t.Fatalf("%v, indexes (-want +got):\n%s", err, diff)
		}
	}
	d := upgradestate.New("services/s/deployments/d", "v2", 1)
	s.drop(d, "v1", folder)
	left("v1", "v2")
	d.Retired = []string{"v1"}
	s.drop(d, "v2", folder)
	left("v1", "v2")
	s.drop(d, "v1", folder)
	left("v2")
	s.drop(d, "v1", folder) // once more, after a restart
	left("v2")
}

// TestPrepares: a version is prepared once its index is up to date, and a switch that has waited
// long enough waits no longer.
func TestPrepares(t *testing.T) {
	t.Parallel()
	s, x, f, _ := searchOf(t)
	waits := map[string]string{"v2": "search index"}
	expect := func(what string, want map[string]string) {
		t.Helper()
		if diff := cmp.Diff(want, s.prepares()); diff != "" {
			t.Errorf("%s (-want +got):\n%s", what, diff)
		}
	}
	expect("a closed index", waits)
	x.set(fakeIndex{}, f, nil)
	expect("an index that does not follow", waits)
	s.upgrades.note(upgrading("a", false))
	expect("shards are not ready", waits)
	s.upgrades.note(upgrading("a", true))
	expect("the wait begins", waits)
	s.cfg.Wait = 0
	expect("the wait is over", nil)
	s.upgrades.note(upgrading("b", false))
	expect("another upgrade", waits)
	s.upgrades.note(upgradestate.New("services/s/deployments/d", "v1", 1))
	expect("no upgrade", waits)
	defer sinktest.Run(t, f)()
	if err := f.Wait(t.Context(), time.Now()); err != nil {
		t.Fatal(err)
	}
	expect("up to date", nil)
	x.set(nil, nil, nil)
	expect("closed again", waits)
}

// TestSearchWaits: a search waits until its index is open and has everything.
func TestSearchWaits(t *testing.T) {
	t.Parallel()
	_, x, f, _ := searchOf(t)
	req := record.SearchRequest{Kind: "items", Terms: []record.SearchTerm{{Text: "a"}}}
	soon, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	if _, err := x.Search(soon, req, time.Time{}); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("a closed index: %v", err)
	}
	found := make(chan error, 1)
	go func() {
		page, err := x.Search(t.Context(), req, time.Now())
		if err == nil && (len(page.Names) != 1 || page.Names[0] != "a") {
			err = errors.New("found something else")
		}
		found <- err
	}()
	x.set(fakeIndex{}, f, nil)
	soon, cancel = context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	if _, err := x.Search(soon, req, time.Time{}); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("an index that does not follow: %v", err)
	}
	defer sinktest.Run(t, f)()
	if err := <-found; err != nil {
		t.Error(err)
	}
	for field, want := range map[string]bool{"": true, "text": true, record.NameField: true, "other": false} {
		if got := x.Searched("items", field); got != want {
			t.Errorf("Searched(%q) is %t", field, got)
		}
	}
	if x.Searched("notes", "") {
		t.Error("an undeclared kind is searched")
	}
}

// TestSearchPages shows, compares and rebuilds an index.
func TestSearchPages(t *testing.T) {
	t.Parallel()
	s, x, f, w := searchOf(t)
	w.Put("items", "a", "text")
	mux := http.NewServeMux()
	var loaded *search
	for _, p := range searchPages(func() *search { return loaded }) {
		mux.Handle(p.Path, p.Handler)
	}
	ask := func(method, path string, code int, contains string) map[string]any {
		t.Helper()
		res := httptest.NewRecorder()
		mux.ServeHTTP(res, httptest.NewRequest(method, path, nil))
		if res.Code != code || !strings.Contains(res.Body.String(), contains) {
			t.Errorf("%s: %d %s, want %d with %s", path, res.Code, res.Body, code, contains)
		}
		out := map[string]any{}
		_ = json.Unmarshal(res.Body.Bytes(), &out) // refusals are text
		return out
	}
	ask("GET", "/search", http.StatusOK, `"indexes":[]`)
	ask("POST", "/search/verify?version=v2", http.StatusBadRequest, "has no search index")
	loaded = s
	ask("GET", "/search", http.StatusOK, `"lagSeconds":null,"documents":0`)
	ask("POST", "/search/rebuild?version=v2", http.StatusConflict, "is not open")
	ask("POST", "/search/rebuild?version=v1", http.StatusBadRequest, `version="v1" has no search index here, want one of [v2]`)
	x.set(fakeIndex{}, f, nil)
	defer sinktest.Run(t, f)()
	if err := f.Wait(t.Context(), time.Now()); err != nil {
		t.Fatal(err)
	}
	ask("GET", "/search", http.StatusOK, `"documents":3,"generation":1,"scanning":false,"failed":0}`)
	ask("POST", "/search/verify?version=v2", http.StatusOK, `{"different":0,"entries":1,"first":[],"records":1,"version":"v2"}`)
	ask("POST", "/search/rebuild?version=v2", http.StatusOK, `"rebuilding":true`)
	for f.Status().Generation != 2 {
		if err := f.Wait(t.Context(), time.Now()); err != nil {
			t.Fatal(err)
		}
	}
}

// TestCheckSearch refuses what no index can be made of.
func TestCheckSearch(t *testing.T) {
	t.Parallel()
	a := &App{cfg: config.Config{DBs: []config.DB{{Version: "v1", APIVersion: "v1"}}}, service: Service{Search: map[string]map[string]Searched{"v1": {"items": {}}}}}
	ok := func(want string) {
		t.Helper()
		if err := a.checkSearch(); want == "" && err != nil || want != "" && (err == nil || !strings.Contains(err.Error(), want)) {
			t.Errorf("%v, want %q", err, want)
		}
	}
	ok("")
	a.cfg.Search.On = true
	ok("search: this program has no index")
	a.service.Engine = func(string, map[string][]string, string) (sink.Index, error) { return nil, nil }
	ok("")
	a.cfg.DBs[0].Encryption.Active = "a001"
	ok("search: the records of v1 are encrypted")
	a.cfg.DBs[0].Encryption.Active = config.EncryptionOff
	ok("")
	a.service.Search = nil
	a.cfg.DBs[0].Encryption.Active = "a001"
	ok("")
}
