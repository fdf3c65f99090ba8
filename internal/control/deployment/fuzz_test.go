package deployment

import (
	"encoding/json"
	"errors"
	"testing"

	"dbcontroller.dev/internal/coord"
	"dbcontroller.dev/upgradestate"
)

// FuzzRecord: no value in the coordination store that is taken for a deployment makes a process fall.
// It stays what it is when it is written again.
func FuzzRecord(f *testing.F) {
	d := upgradestate.New("services/a/deployments/b", "v1", 4)
	whole, err := json.Marshal(d)
	if err != nil {
		f.Fatal(err)
	}
	f.Add(whole)
	f.Add([]byte(`{"format":99,"name":1}`))
	f.Add([]byte{0x1f, 0x8b, 8, 0})
	f.Add([]byte(`null`))
	f.Fuzz(func(t *testing.T, value []byte) {
		d, err := decodeRecord(coord.KV{Value: value, Mod: 7})
		if err != nil {
			if !errors.Is(err, ErrCorrupt) && !errors.Is(err, ErrFormat) {
				t.Errorf("error %v", err)
			}
			return
		}
		_ = upgradestate.Actions(d)
		_ = upgradestate.ReadyToSwitch(d)
		_ = upgradestate.ReadPlaces(d, d.CurrentVersion)
		_, _ = upgradestate.OpenBreaches(d), upgradestate.OpenDifferent(d)
		_, _ = BackDirection(d)
		_ = Directions(d)
		text, err := json.Marshal(upgradestate.Clone(d))
		if err != nil {
			t.Fatal(err)
		}
		again, err := decodeRecord(coord.KV{Value: packRecord(text), Mod: 7})
		if err != nil {
			t.Fatalf("%s is not read again: %v", text, err)
		}
		if back, err := json.Marshal(again); err != nil || string(back) != string(text) {
			t.Errorf("%s is read again as %s: %v", text, back, err)
		}
	})
}

// FuzzValues: what processes publish of themselves is read, or is an error of that key alone.
func FuzzValues(f *testing.F) {
	f.Add("servers/a", []byte(`{"id":"a","protocol":1}`))
	f.Add("progress/c", []byte(`[{"shard":-1},{"shard":1}]`))
	f.Add("00001/overflow", []byte(`{"kind":"users","overflow":3}`))
	f.Add("kinds/%zz", []byte(`[`))
	f.Fuzz(func(t *testing.T, key string, value []byte) {
		kvs := []coord.KV{{Key: key, Value: value, Mod: 1}, {Key: "p/" + key, Value: value, Mod: 2}}
		servers, bad := decodeServers(kvs)
		if len(servers)+len(bad) != len(kvs) {
			t.Errorf("%d servers and %d errors of %d keys", len(servers), len(bad), len(kvs))
		}
		_, _ = decodeProgress(kvs)
		_, _ = decodeUpdating(kvs)
		_, _ = decodeInsecure(kvs)
		_, _ = decodeReadiness(kvs[0])
		// Where it cannot be read it blocks.
		all := decodeParked("1-v1-v2", "p/", kvs)
		if n := len(all); n > len(kvs) {
			t.Errorf("%d parked of %d keys", n, len(kvs))
		}
		_ = CountParked(all)
	})
}
