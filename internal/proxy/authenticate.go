package proxy

import (
	"context"
	"encoding/base64"
	"errors"
	"log/slog"
	"strings"
	"time"

	"go.mongodb.org/mongo-driver/v2/x/bsonx/bsoncore"

	"dbcontroller.dev/internal/base/printable"
	"dbcontroller.dev/internal/proxy/login"
	"dbcontroller.dev/internal/proxy/upstream"
)

// admit serves the commands about logins, and refuses those that need one. It returns nil if the command may go
// on, and notes its user. Codes and texts are those of MongoDB 8.
func (p *Proxy) admit(ctx context.Context, cl *peer, c *command) bsoncore.Document {
	c.user = cl.user.Load()
	if c.user != nil && !c.user.Active() {
		cl.user.Store(nil)
		c.user = nil
	}
	switch c.verb {
	case "hello", "isMaster", "ismaster", "ping":
		return nil
	case "saslStart":
		return p.startLogin(cl, c.database, c.msg.Body)
	case "saslContinue":
		return p.goOnWithLogin(ctx, cl, c.msg.Body)
	case "authenticate":
		mechanism, _ := text(c.msg.Body, "mechanism")
		return failure(codeMechanismUnavailable, login.Refuse(mechanism).Error())
	case "connectionStatus":
		return p.connectionStatus(ctx, *c)
	}
	switch {
	case c.user == nil:
		return failure(codeUnauthorized, "Command "+c.verb+" requires authentication")
	case c.verb == "logout":
		if c.database == c.user.Database {
			cl.user.Store(nil)
		}
		return success()
	}
	// It would be a session of another user. Its number of writes would be looked for in the wrong place.
	if lsid, err := c.msg.Body.LookupErr("lsid"); err == nil {
		if doc, ok := lsid.DocumentOK(); ok && !single(doc) {
			return failure(codeUnauthorized, "the lsid names another user: the proxy serves only sessions of the user that sends the command")
		}
	}
	return nil
}

// greet adds to the reply to hello what a driver asks there about logins. A reply that is not nil is an error.
func (p *Proxy) greet(cl *peer, c command, b *bsoncore.DocumentBuilder) bsoncore.Document {
	if v, err := c.msg.Body.LookupErr("saslSupportedMechs"); err == nil {
		whole, _ := v.StringValueOK()
		database, name, ok := strings.Cut(whole, ".")
		if !ok {
			return failure(codeBadValue, "UserName must contain a '.' separated database.user pair")
		}
		list := bsoncore.NewArrayBuilder()
		for _, m := range p.users.known.Mechanisms(database, name) {
			list.AppendString(m)
		}
		b.AppendArray("saslSupportedMechs", list.Build())
	}
	if v, err := c.msg.Body.LookupErr("speculativeAuthenticate"); err == nil {
		start, _ := v.DocumentOK()
		database, _ := text(start, "db")
		// A driver that gets no answer begins with saslStart.
		if answer := p.startLogin(cl, database, start); succeeded(answer) {
			if answer, err = without(answer, "ok"); err == nil {
				b.AppendDocument("speculativeAuthenticate", answer)
			}
		}
	}
	return nil
}

// startLogin begins a conversation about a login. It ends the one that is under way.
func (p *Proxy) startLogin(cl *peer, database string, start bsoncore.Document) bsoncore.Document {
	cl.login = nil
	mechanism, _ := text(start, "mechanism")
	payload, err := payloadOf(start)
	if err != nil {
		return failure(codeProtocol, err.Error())
	}
	short := false
	if v, err := start.LookupErr("options", "skipEmptyExchange"); err == nil {
		short, _ = v.BooleanOK()
	}
	conversation, answer, err := p.users.known.Start(database, mechanism, payload, short)
	var refused *login.MechanismError
	switch {
	case errors.As(err, &refused):
		return failure(codeMechanismUnavailable, refused.Error())
	case err != nil:
		return p.loginFailed(cl, nil, err)
	}
	cl.login = conversation
	return saslReply(answer, false)
}

// goOnWithLogin takes the next message of a conversation.
func (p *Proxy) goOnWithLogin(ctx context.Context, cl *peer, body bsoncore.Document) bsoncore.Document {
	conversation := cl.login
	cl.login = nil // unless it goes on
	if conversation == nil {
		return failure(codeProtocol, "No SASL session state found")
	}
	if id, err := body.LookupErr("conversationId"); err != nil || !isNumber(id, conversationID) {
		return failure(codeProtocol, "sasl: Mismatched conversation id")
	}
	payload, err := payloadOf(body)
	if err != nil {
		return failure(codeProtocol, err.Error())
	}
	answer, done, err := p.check(ctx, cl, conversation, payload)
	if err != nil {
		return p.loginFailed(cl, conversation, err)
	}
	if !done {
		cl.login = conversation
		return saslReply(answer, false)
	}
	u := p.users.of[conversation.User()]
	if u == nil {
		return p.loginFailed(cl, conversation, errors.New("the user was removed"))
	}
	if before := cl.user.Load(); before != nil && before != u {
		return failure(codeProtocol, "Each client connection may only be authenticated once. Previously authenticated as: "+before.Name+"@"+before.Database)
	}
	cl.user.Store(u)
	return saslReply(answer, true)
}

// check takes a message of a conversation. A wrong password takes its time, whether or not the client waits.
func (p *Proxy) check(ctx context.Context, cl *peer, conversation *login.Conversation, payload []byte) (answer []byte, done bool, err error) {
	if !conversation.Guesses() {
		return conversation.Next(payload)
	}
	place, err := p.users.guard.Enter(ctx, cl.conn.RemoteAddr(), conversation.Database, conversation.Name)
	if err != nil {
		return nil, false, err
	}
	right := false
	defer func() { place.Leave(p.closing, !right) }()
	answer, done, err = conversation.Next(payload)
	right = err == nil
	return answer, done, err
}

// longestName bounds names of strangers in the log.
const longestName = 100

// loginFailed logs the reason, which the client does not learn, and returns the reply.
func (p *Proxy) loginFailed(cl *peer, conversation *login.Conversation, why error) bsoncore.Document {
	p.users.failed.Add(1)
	if left, ok := p.users.lines.next(time.Now()); ok {
		attrs := []any{slog.String("client", cl.conn.RemoteAddr().String()), slog.String("reason", why.Error())}
		if conversation != nil {
			cut := func(s string) string { return printable.Line(s[:min(len(s), longestName)]) }
			attrs = append(attrs, slog.String("user", cut(conversation.Name)), slog.String("database", cut(conversation.Database)), slog.String("mechanism", conversation.Mechanism))
		}
		if left > 0 {
			attrs = append(attrs, slog.Int("further", left))
		}
		p.log.Warn("a login failed", attrs...)
	}
	return failure(codeAuthenticationFailed, "Authentication failed.")
}

// conversationID is the id of each conversation. A connection has at most one.
const conversationID = 1

func saslReply(payload []byte, done bool) bsoncore.Document {
	return bsoncore.NewDocumentBuilder().AppendInt32("conversationId", conversationID).AppendBoolean("done", done).
		AppendBinary("payload", 0, payload).AppendDouble("ok", 1).Build()
}

// payloadOf returns the message of SASL in a command. Old clients send it as text in base64.
func payloadOf(body bsoncore.Document) ([]byte, error) {
	v, err := body.LookupErr("payload")
	if err != nil {
		return nil, errors.New("SASL payload is missing")
	}
	if _, b, ok := v.BinaryOK(); ok {
		return b, nil
	}
	encoded, ok := v.StringValueOK()
	b, err := base64.StdEncoding.DecodeString(encoded)
	if !ok || err != nil {
		return nil, errors.New("Failed decoding SASL payload: invalid base64") //nolint:staticcheck // the text of MongoDB
	}
	return b, nil
}

func isNumber(v bsoncore.Value, n int64) bool {
	got, ok := v.AsInt64OK()
	return ok && got == n
}

// connectionStatus answers with the name by which the client has logged in, and with the roles that the home
// cluster gives it.
func (p *Proxy) connectionStatus(ctx context.Context, c command) bsoncore.Document {
	users, none := bsoncore.NewArrayBuilder(), bsoncore.NewArrayBuilder().Build()
	if c.user == nil {
		info := bsoncore.NewDocumentBuilder().AppendArray("authenticatedUsers", none).AppendArray("authenticatedUserRoles", none).Build()
		return bsoncore.NewDocumentBuilder().AppendDocument("authInfo", info).AppendDouble("ok", 1).Build()
	}
	reply, _, err := p.exchange(ctx, c.user, p.home, upstream.Want{Mode: upstream.PrimaryPreferred}, c.msg)
	if err != nil {
		return unreachable(c, err)
	}
	v, err := reply.LookupErr("authInfo")
	info, ok := v.DocumentOK()
	if err != nil || !ok {
		return reply
	}
	users.AppendDocument(bsoncore.NewDocumentBuilder().AppendString("user", c.user.Name).AppendString("db", c.user.Database).Build())
	if info, err = without(info, "authenticatedUsers"); err == nil {
		info, err = with(info, "authenticatedUsers", listed(users.Build()))
	}
	if err == nil {
		reply, err = without(reply, "authInfo")
	}
	if err == nil {
		reply, err = with(reply, "authInfo", bsoncore.Value{Type: bsoncore.TypeEmbeddedDocument, Data: info})
	}
	if err != nil {
		return failure(codeHostUnreachable, err.Error())
	}
	return reply
}
