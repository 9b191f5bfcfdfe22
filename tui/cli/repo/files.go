package repo

import (
	"context"
	"strings"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"limpet/sync/api"
	"limpet/sync/snapshot"
	"limpet/sync/text"
	"limpet/tui/cli/command"
)

type filesCmd struct {
	Name   string `arg:"" help:"Name of the repository."`
	Filter string `help:"Only files with these words, in any case." placeholder:"WORDS"`
}

// Help is the long help of the command.
func (filesCmd) Help() string {
	return "It reads the mirror of the running agent at the commit that was synced last: nothing is fetched."
}

func (c filesCmd) Run(ctx context.Context, e *command.Env) error {
	return e.WithObject(ctx, command.Needs{API: true}, api.Repositories, c.Name, func(s *command.Session, u *unstructured.Unstructured) error {
		if s.Daemon == nil {
			return command.Errorf(command.ExitUnreachable, "limpet --daemon", "no agent runs, whose mirror has the files")
		}
		list, err := s.Daemon.Files(ctx, snapshot.Subject{Namespace: u.GetNamespace(), Name: u.GetName()})
		if err != nil {
			return err
		}
		t := command.Table{Columns: []string{"FILE", "KIND", "TITLE", "STATE", "REASON"}, Wide: []string{"UID", "FOLDER"}}
		items := []any{}
		for _, f := range list.Files {
			row := []string{f.Path, text.OrDash(f.Kind), text.OrDash(f.Title), f.State, text.OrDash(f.Reason), text.OrDash(f.UID), text.OrDash(f.Folder)}
			if hasWords(c.Filter, row) {
				t.Add(u.GetNamespace(), "file/"+f.Path, row...)
				items = append(items, f)
			}
		}
		return e.PrintList(items, t)
	})
}

func hasWords(words string, row []string) bool {
	all := strings.ToLower(strings.Join(row, "\n"))
	for word := range strings.FieldsSeq(strings.ToLower(words)) {
		if !strings.Contains(all, word) {
			return false
		}
	}
	return true
}
