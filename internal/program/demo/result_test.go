package app

import (
	"bytes"
	"encoding/json"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// wantJSON is the shape that the project has promised, key by key and in this order.
const wantJSON = `{"backend": "mongodb 8.2.0", "active": "v2", "shards": 16, "controllers": 2, "servers": 2, "records": 0,
 "copy_docs_per_second": 0, "writes_acked": 0, "writes_failed": 0, "reads": 0, "reads_failed": 0,
 "lost": 0, "duplicated": 0, "resurrected": 0,
 "write_pause_ms": {"n": 0, "p50": 0, "p99": 0, "max": 0}, "fence": {"bbs": "uuid", "packages": "validator"},
 "phases_ms": {"hold": 0, "fence": 0, "drain": 0, "flip": 0, "restart": 0},
 "verified": {"compared": 0, "mismatched": 0, "parked": 0},
 "switches": [{"from": "v1", "to": "v2", "write_pause_ms": {"n": 0, "p50": 0, "p99": 0, "max": 0},
  "phases_ms": {"hold": 0, "fence": 0, "drain": 0, "flip": 0, "restart": 0}}],
 "late": 0, "late_ms": 0, "engines": {"bbs": ["etcd", "mongodb"], "packages": ["mongodb", "mongodb"]}, "cell_crashes": 1, "proxies": 2}`

func TestJSONIsOneLineOfTheShapePromised(t *testing.T) {
	t.Parallel()
	r := Result{
		Backend: "mongodb 8.2.0", Active: "v2", Shards: 16, Controllers: 2, Servers: 2,
		Fence:    map[string]string{"bbs": "uuid", "packages": "validator"},
		Switches: []Switch{{From: "v1", To: "v2"}},
		Engines:  map[string][]string{"bbs": {"etcd", "mongodb"}, "packages": {"mongodb", "mongodb"}}, CellCrashes: 1, Proxies: 2,
	}
	var got, want bytes.Buffer
	if err := r.print(&got, true); err != nil {
		t.Fatal(err)
	}
	if err := json.Compact(&want, []byte(wantJSON)); err != nil {
		t.Fatal(err)
	}
	want.WriteByte('\n')
	if diff := cmp.Diff(want.String(), got.String()); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

func TestErrNamesWhatIsNotZero(t *testing.T) {
	t.Parallel()
	if err := (Result{WritesAcked: 5, Reads: 5, Records: 3}).Err(); err != nil {
		t.Errorf("a good result: %v", err)
	}
	for want, r := range map[string]Result{
		"lost 1": {Lost: 1}, "duplicated 2": {Duplicated: 2}, "resurrected 3": {Resurrected: 3},
		"writes_failed 4": {WritesFailed: 4}, "reads_failed 5": {ReadsFailed: 5},
		"mismatched 6": {Verified: Verified{Mismatched: 6}}, "parked 7": {Verified: Verified{Parked: 7}},
	} {
		if err := r.Err(); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v, want one with %q", err, want)
		}
	}
}

func TestReportForPeople(t *testing.T) {
	t.Parallel()
	var b bytes.Buffer
	r := Result{Backend: "mongodb 8.2.0", Active: "v2", Records: 22000, WritePause: Pause{N: 60, Max: 254}, Lost: 1, Fence: map[string]string{"bbs": "uuid"}}
	if err := r.print(&b, false); err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{"mongodb 8.2.0", "22000 records", "1 lost", "max 254 ms over the 60 writes"} {
		if !strings.Contains(b.String(), want) {
			t.Errorf("%q is not in:\n%s", want, b.String())
		}
	}
}

func TestBadOptionsAreRefused(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct {
		name string
		o    Options
		want string
	}{
		{"too few records", Options{Records: 5}, "--records 5: give a number from 100"},
		{"too many writers", Options{Writers: 1000}, "--writers 1000: give a number from 1 to 256"},
		{"negative rate", Options{Rate: -3}, "--rate -3: give a number"},
		{"no server", Options{Binary: "/bin/sh", ServerBinary: "/nowhere/server"}, `no sample server binary at "/nowhere/server": build it`},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			_, err := Run(t.Context(), tc.o)
			if err == nil || !strings.Contains(err.Error(), tc.want) {
				t.Errorf("%v, want one with %q", err, tc.want)
			}
		})
	}
}
