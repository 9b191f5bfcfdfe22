package repo

import (
	"context"
	"fmt"
	"strings"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"limpet/sync/api"
	"limpet/sync/snapshot"
	"limpet/sync/text"
	"limpet/tui/cli/command"
	"limpet/tui/widget"
)

type filesCmd struct {
	Name   string `arg:"" help:"Name of the repository."`
	Path   string `arg:"" optional:"" help:"A file to print; JSON has sorted keys. Without it all files are listed."`
	Filter string `help:"Only files with these words, in any case." placeholder:"WORDS"`
}

func (c filesCmd) Run(ctx context.Context, e *command.Env) error {
	needs := command.Needs{API: true, Store: true}
	return e.WithObject(ctx, needs, api.Repositories, c.Name, func(s *command.Session, u *unstructured.Unstructured) error {
		list, err := c.list(ctx, e, s, u)
		if err != nil {
			return err
		}
		for line := range strings.Lines(list.Text) {
			fmt.Fprintln(e.Out, text.Clean(strings.TrimSuffix(line, "\n")))
		}
		if c.Path != "" {
			return nil
		}
		t := command.Table{Columns: []string{"FILE", "KIND", "TITLE", "STATE", "REASON"}, Wide: []string{"UID", "FOLDER"}}
		items := []any{}
		for _, f := range list.Files {
			row := []string{f.Path, text.OrDash(f.Kind), text.OrDash(f.Title), f.State,
				text.OrDash(f.Reason), text.OrDash(f.UID), text.OrDash(f.Folder)}
			if widget.ContainsWords(c.Filter, row...) {
				t.Add(u.GetNamespace(), "file/"+f.Path, row...)
				items = append(items, f)
			}
		}
		return e.PrintList(items, t)
	})
}

// list asks the daemon that holds the state file, else reads the mirrors beside the file from here.
func (c filesCmd) list(ctx context.Context, e *command.Env, s *command.Session, u *unstructured.Unstructured) (snapshot.FileList, error) {
	if s.Daemon != nil {
		of := snapshot.Subject{Kind: snapshot.SubjectRepository, Namespace: u.GetNamespace(), Name: u.GetName()}
		return s.Daemon.Files(ctx, snapshot.FileQuery{Subject: of, Path: c.Path})
	}
	comparer, err := e.Comparer(s.File)
	if err != nil {
		return snapshot.FileList{}, err
	}
	defer comparer.Mirrors.Close()
	return comparer.FilesOf(ctx, u, c.Path)
}
