package proxy

import (
	"strings"
	"testing"

	"go.mongodb.org/mongo-driver/v2/x/bsonx/bsoncore"
)

// TestRecoveryToken: a transaction at the next place is committed by another proxy. The token of its
// statements leads there, and no other cluster is asked, which may be away by then.
func TestRecoveryToken(t *testing.T) {
	t.Parallel()
	w := newWorld(t, worldOptions{proxies: 2})
	w.open("v2", 2)
	w.await(w.proxies[0])
	w.await(w.proxies[1])
	w.at["v2"].on("insert", ok(t))
	w.at["v2"].on("abortTransaction", func(command) bsoncore.Document {
		return doc(t, `{"ok":0.0,"code":256,"errmsg":"committed"}`)
	})
	token, err := w.call(0, insertFirst).LookupErr(recoveryToken)
	if err != nil {
		t.Fatal(err)
	}
	again := strings.Replace(commit, `"$db"`, `"recoveryToken":`+token.String()+`,"$db"`, 1)
	if got := w.call(1, again); !succeeded(got) {
		t.Error(json(t, got))
	}
	for _, verb := range []string{"commitTransaction", "abortTransaction"} {
		if n := len(w.at["v1"].calls(verb)); n != 0 {
			t.Errorf("the former place got %d of %s", n, verb)
		}
	}
	// A server that is no router knows no tokens.
	for _, c := range w.at["v2"].calls("commitTransaction") {
		if _, err := c.msg.Body.LookupErr(recoveryToken); err == nil {
			t.Error("the server got the token of the proxy")
		}
	}
	// A proxy with another configuration asks all clusters.
	strange := strings.Replace(commit, `"$db"`, `"recoveryToken":{"database":"shop","version":"v9"},"$db"`, 1)
	if w.call(1, strange); len(w.at["v1"].calls("commitTransaction")) != 1 {
		t.Error("a cluster was not asked")
	}
}

// TestRecoveryTokenOfRouter: a router behind the proxy gives its own token, and gets it back.
func TestRecoveryTokenOfRouter(t *testing.T) {
	t.Parallel()
	o := worldOptions{routers: []string{"v1"}}
	w := makeWorld(t, o)
	w.at["v2"] = w.at["v1"] // all versions in one cluster
	w.start(o)
	const token = `"recoveryToken":{"recoveryShardId":"s1"}`
	w.at["v1"].on("insert", func(command) bsoncore.Document { return doc(t, `{"n":1,"ok":1.0,`+token+`}`) })
	if got := json(t, w.call(0, insertFirst)); !strings.Contains(got, "s1") || strings.Contains(got, "shop") {
		t.Error(got)
	}
	w.call(0, strings.Replace(commit, `"$db"`, token+`,"$db"`, 1))
	if sent := w.at["v1"].calls("commitTransaction"); len(sent) != 1 || !strings.Contains(json(t, sent[0].msg.Body), "s1") {
		t.Errorf("the router got %v", sent)
	}
}
