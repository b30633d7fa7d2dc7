"""LangChain and LangGraph on lanes."""
