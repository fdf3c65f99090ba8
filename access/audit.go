package access

import (
	"net/http"

	"connectrpc.com/connect"
	"go.uber.org/zap"

	"dbcontroller.dev/refusal"
)

// Audit tells of each call that changes something, of each that was refused, and of who
// made it: in a log of its own, before the caller has the answer.
type Audit struct {
	log *zap.Logger
}

// NewAudit writes to a logger, under the name audit.
func NewAudit(log *zap.Logger) *Audit { return &Audit{log: log.Named("audit")} }

// asking is what requests have that change something.
type asking interface {
	GetName() string
	GetRequestedBy() string
	GetDryRun() bool
}

func (a *Audit) answered(c Caller, procedure string, req any, err error) {
	if a == nil {
		return
	}
	if r, ok := req.(interface{ GetClientId() string }); ok && r.GetClientId() != "" && err == nil {
		if _, renewal := req.(interface{ GetTtlMs() int32 }); renewal {
			return // every few seconds, of each application
		}
	}
	fields := a.fields(c, callName(procedure))
	if r, ok := req.(interface{ GetName() string }); ok && r.GetName() != "" {
		fields = append(fields, zap.String("deployment", clip(r.GetName())))
	}
	if r, ok := req.(asking); ok {
		fields = append(fields, zap.String("by", clip(r.GetRequestedBy())), zap.Bool("dry_run", r.GetDryRun()))
	}
	if r, ok := req.(interface{ GetApplication() string }); ok {
		fields = append(fields, zap.String("application", clip(r.GetApplication())))
	}
	a.log.Info("call", append(fields, answer(err)...)...)
}

func (a *Audit) refused(r *http.Request, c Caller, err error) {
	if a == nil {
		return
	}
	a.log.Warn("refused", append(a.fields(c, clip(callName(r.URL.Path))), answer(err)...)...)
}

func (a *Audit) fields(c Caller, call string) []zap.Field {
	roles := make([]string, len(c.Roles))
	for i, r := range c.Roles {
		roles[i] = string(r)
	}
	return []zap.Field{zap.String("identity", c.Name), zap.String("proof", c.Proof), zap.Strings("roles", roles),
		zap.String("from", c.Address), zap.String("call", call)}
}

// answer is what the caller gets to know.
func answer(err error) []zap.Field {
	if err == nil {
		return []zap.Field{zap.String("answer", "ok")}
	}
	fields := []zap.Field{zap.String("answer", connect.CodeOf(err).String()), zap.String("message", err.Error())}
	if reason, _ := refusal.Of(err); reason != "" {
		fields = append(fields, zap.String("reason", string(reason)))
	}
	return fields
}
