package fences

import "testing"

// FuzzRestoration: what a fence has noted of a validator reads the same when it is written again.
func FuzzRestoration(f *testing.F) {
	f.Add(`{"validator":{"a":{"$exists":true}},"validationLevel":"strict","validationAction":"error"}`)
	f.Add(`{"validator":`)
	f.Add(`{"alidator":{"a":{"$existsdatrue}},"v`) // the library never returned
	f.Fuzz(func(t *testing.T, text string) {
		r, err := RestorationFrom(text)
		if err != nil || text == "" {
			return
		}
		first, err := r.text()
		if err != nil {
			return
		}
		again, err := RestorationFrom(first)
		if err != nil {
			t.Fatalf("%s is not read again: %v", first, err)
		}
		if second, err := again.text(); err != nil || second != first {
			t.Errorf("%s is read again as %s: %v", first, second, err)
		}
	})
}
