package proxy

import (
	"sync/atomic"
	"testing"

	"go.mongodb.org/mongo-driver/v2/x/bsonx/bsoncore"
)

// TestInsist: a server is gone a few times in a row. The proxy sends a command again as often as a router does, if it is
// a read or a write with a number. All others reach a server once, and so do commands that a server has read.
func TestInsist(t *testing.T) {
	t.Parallel()
	const (
		lost       = "" // the connection is reset
		cut        = "cut"
		notPrimary = `{"ok":0.0,"errmsg":"not primary","code":10107,"codeName":"NotWritablePrimary","errorLabels":["RetryableWriteError"]}`
		number     = `"txnNumber":{"$numberLong":"5"},` + session
		insert     = `{"insert":"orders","documents":[{"_id":1}],`
		find       = `{"find":"orders","filter":{},` + session + `}`
		other      = `{"insert":"elsewhere","documents":[{"_id":1}],`
		done       = `{"n":1,"ok":1.0}`
		found      = `{"cursor":{"id":{"$numberLong":"0"},"ns":"shop.orders","firstBatch":[{"_id":1}]},"ok":1.0}`
	)
	for name, tc := range map[string]struct {
		command, before, answer string
		failures                int // before the answer
		want                    int // commands at the server
		succeeds, retry         bool
	}{
		"write with a number":                  {insert + number + `}`, lost, done, attempts - 1, attempts, true, false},
		"write with a number, for ever":        {insert + number + `}`, lost, done, attempts, attempts, false, true},
		"write with a number, no primary":      {insert + number + `}`, notPrimary, done, 1, 1, false, true},
		"write with a number, cut":             {insert + number + `}`, cut, done, 1, 1, false, true},
		"write without a number":               {insert + session + `}`, lost, done, 1, 1, false, false},
		"write without a number, no primary":   {insert + session + `}`, notPrimary, done, 1, 1, false, true},
		"read":                                 {find, lost, found, attempts - 1, attempts, true, false},
		"read, no primary":                     {find, notPrimary, found, 1, 1, false, true},
		"read, cut":                            {find, cut, found, 1, 1, false, false},
		"elsewhere: write with a number":       {other + number + `}`, lost, done, 2, 3, true, false},
		"elsewhere: write without a number":    {other + session + `}`, lost, done, 1, 1, false, false},
		"elsewhere: read":                      {`{"count":"elsewhere",` + session + `}`, lost, done, 2, 3, true, false},
		"elsewhere: an aggregation that reads": {`{"aggregate":"elsewhere","pipeline":[],"cursor":{},` + session + `}`, lost, found, 2, 3, true, false},
		"elsewhere: one that writes":           {`{"aggregate":"elsewhere","pipeline":[{"$out":"x"}],"cursor":{},` + session + `}`, lost, found, 1, 1, false, false},
		"a command that may change something":  {`{"compact":"elsewhere",` + session + `}`, lost, done, 1, 1, false, false},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t, worldOptions{})
			c, err := parse(request(doc(t, tc.command)))
			if err != nil {
				t.Fatal(err)
			}
			var came atomic.Int64
			for _, s := range w.at {
				s.resets.Store(tc.before == lost)
				s.on(c.verb, func(command) bsoncore.Document {
					if came.Add(1) > int64(tc.failures) {
						return doc(t, tc.answer)
					}
					if tc.before == lost || tc.before == cut {
						return nil
					}
					return doc(t, tc.before)
				})
			}
			reply := w.call(0, tc.command)
			if succeeded(reply) != tc.succeeds || labelled(reply, labelRetryable) != tc.retry {
				t.Errorf("reply %s", reply)
			}
			sent := 0
			for _, s := range w.at {
				sent += len(s.calls(c.verb))
				for i, one := range s.calls(c.verb) {
					if one.number != c.number || one.session != c.session {
						t.Errorf("try %d has number %d of session %s", i, one.number, one.session)
					}
				}
			}
			if sent != tc.want {
				t.Errorf("it was sent %d times, want %d", sent, tc.want)
			}
		})
	}
}
